"""A `main` of several methods is cut apart before its passes, so that none joins ops of two, and joined when placed.

While it is cut, `main` has arguments and results of states behind its own. The arguments are what a method reads of the
states, and the results what the methods before leave there.
"""

from __future__ import annotations

from collections.abc import Sequence

from tosaic.support.functions import (
    body_of,
    callee_of,
    computing_ops,
    main_of,
    number_of_states,
    return_instead,
    returned,
    retype,
)
from tosaic.support.methods import (
    entered_of,
    entering_of,
    methods_by_op,
    methods_of,
    note_entered,
    note_entering,
    note_method,
    starts,
)
from tosaic.support.mlir import constant_shape, copy_of, functions, ir, shape_of
from tosaic.support.values import producer

_UNCHANGED = -1


def cut_methods(module: ir.Module) -> None:
    """Let the methods of `main` read states that are arguments; a module of one method stays as it is."""
    main = functions(module)["main"]
    if not methods_of(main):
        return
    block, results = body_of(main), returned(main)
    own, states = len(block.arguments), number_of_states(main)
    first = len(results) - states
    now, entered = list(block.arguments)[own - states :], []
    for op in [op.operation for op in block.operations]:
        if (entering := entering_of(op)) is None:
            continue
        source, argument = op.operands[0], block.add_argument(op.results[0].type, op.location)
        if source == now[entering.state]:
            entered.append((entering, _UNCHANGED))
        else:
            if source not in results:
                results.append(source)
            entered.append((entering, results.index(source)))
        op.results[0].replace_all_uses_with(argument)
        now[entering.state] = argument
        results = [argument if result == op.results[0] else result for result in results]
        op.erase()
    _repeat(main, "arg_attrs", [own - states + entering.state for entering, _ in entered])
    given = {number: entering.state for entering, number in entered if number >= first + states}
    _repeat(main, "res_attrs", [first + given[number] for number in sorted(given)])
    return_instead(main, results)
    note_entered(main, entered)


def join_methods(module: ir.Module) -> None:
    """Let what a method reads of the states be what the methods before leave there: a view of that, which says so
    (`entering_of`). Each function knows its method, and `main` holds constants, then the ops of one method behind those
    of another."""
    main = functions(module)["main"]
    if not methods_of(main):
        return
    block, results, entered = body_of(main), returned(main), entered_of(main)
    ops = _with_own_constants(module)
    states, kept = number_of_states(main), sum(each.results for each in methods_of(main))
    own = len(block.arguments) - len(entered)
    now, views = list(block.arguments)[own - states : own], list[tuple[int, ir.Operation]]()
    for argument, (entering, number) in zip(list(block.arguments)[own:], entered, strict=True):
        source = now[entering.state] if number == _UNCHANGED else results[number]
        with main.context, main.location, ir.InsertionPoint(block.operations[len(block.operations) - 1]):
            shape = constant_shape(shape_of(argument))
            view = ir.Operation.create("tosa.reshape", results=[argument.type], operands=[source, shape])
        note_entering(view, entering)
        argument.replace_all_uses_with(view.result)
        now[entering.state] = view.result
        results = [view.result if result == argument else result for result in results]
        views.append((entering.method, view))
    return_instead(main, results[: kept + states])
    for _ in entered:
        block.erase_argument(own)
    _keep(main, "arg_attrs", own)
    _keep(main, "res_attrs", kept + states)
    retype(main)
    known = functions(module)
    for method, op in ops:
        if op.name == "func.call":
            note_method(known[callee_of(op)], method)
    *_, end = block.operations
    for _, op in sorted([*views, *ops], key=lambda placed: placed[0]):
        op.move_before(end)


def method_alone(module: ir.Module, number: int) -> ir.Module:
    """One method of a whole module, as a module: `main` takes its inputs and all states, and gives its results and all
    states."""
    copy = copy_of(module)
    cut_methods(copy)
    main = functions(copy)["main"]
    block, results, methods, entered = body_of(main), returned(main), methods_of(main), entered_of(main)
    own, count = len(block.arguments) - len(entered), number_of_states(main)
    before = list(block.arguments)[own - count : own]
    for argument, (entering, _) in zip(list(block.arguments)[own:], entered, strict=True):
        if entering.method == number:
            before[entering.state] = argument
    owners = methods_by_op(main)
    after = list(before)
    kept = sum(each.results for each in methods)
    left = list(enumerate(results[kept : kept + count]))
    left += [(entering.state, results[at]) for entering, at in reversed(entered) if at != _UNCHANGED]
    for state, value in left:
        if (op := producer(value)) is not None and owners.get(op) == number:
            after[state] = value
    taken = starts([each.inputs for each in methods])[number]
    given = starts([each.results for each in methods])[number]
    inputs = list(block.arguments)[taken : taken + methods[number].inputs]
    outputs = results[given : given + methods[number].results]
    ops = [op for op in computing_ops(main) if owners.get(op, number) == number]
    *_, end = block.operations
    with main.context, end.location, ir.InsertionPoint(end):
        copies = [ir.Operation.create("tosa.identity", [value.type], [value]) for value in (*outputs, *after)]
    return main_of([*ops, *copies], [*inputs, *before], [each.result for each in copies])


def _with_own_constants(module: ir.Module) -> list[tuple[int, ir.Operation]]:
    """The ops of `main` that compute, each with its method; what is made of constants alone each method makes for
    itself, as any may be called first."""
    main = functions(module)["main"]
    owners = methods_by_op(main)
    found = [(owners[op], op) for op in computing_ops(main) if op in owners]
    for op in reversed([op for op in computing_ops(main) if op not in owners]):
        readers = {method for method, other in found if any(value in op.results for value in other.operands)}
        for method in sorted(readers):
            own = op if method == min(readers) else _copied(module, op, method)
            for other in [other for owner, other in found if owner == method and owner != min(readers)]:
                for index, value in enumerate(list(other.operands)):
                    if value in op.results:
                        other.operands[index] = own.results[list(op.results).index(value)]
            found.insert(0, (method, own))
    return found


def _copied(module: ir.Module, op: ir.Operation, method: int) -> ir.Operation:
    """The op again for another method; of a call, with a function of its own."""
    copy = op.clone(ir.InsertionPoint(op)).operation
    if op.name == "func.call":
        name = f"{callee_of(op)}_{method}"
        with module.context:
            function = functions(module)[callee_of(op)].clone(ir.InsertionPoint(module.body)).operation
            function.attributes["sym_name"] = ir.StringAttr.get(name)
            copy.attributes["callee"] = ir.FlatSymbolRefAttr.get(name)
    return copy


def _repeat(main: ir.Operation, kind: str, numbers: Sequence[int]) -> None:
    """Let what is behind the arguments or results of `main` be annotated as those of these numbers are."""
    if kind in main.attributes:
        known = list(ir.ArrayAttr(main.attributes[kind]))
        main.attributes[kind] = ir.ArrayAttr.get([*known, *(known[number] for number in numbers)], main.context)


def _keep(main: ir.Operation, kind: str, count: int) -> None:
    if kind in main.attributes:
        main.attributes[kind] = ir.ArrayAttr.get(list(ir.ArrayAttr(main.attributes[kind]))[:count], main.context)
