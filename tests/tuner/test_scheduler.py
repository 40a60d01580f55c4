import math

from tosaic.tuner.scheduler import History, gradient, round_robin


def _simulate(pick, weights, costs, rounds, size=10):
    histories = [History(weight) for weight in weights]
    for _ in range(rounds):
        i = pick(histories)
        histories[i].trials += size
        histories[i].curve.append((histories[i].trials, costs[i](histories[i].trials)))
    return [history.trials for history in histories]


def test_heavier_tasks_get_more_trials():
    light, heavy = _simulate(gradient, [1, 8], [lambda _: 100.0] * 2, rounds=90)
    assert heavy > 4 * light > 0


def test_slower_tasks_get_more_trials():
    fast, slow = _simulate(gradient, [1, 1], [lambda _: 100.0, lambda _: 800.0], rounds=90)
    assert slow > 4 * fast > 0


def test_a_task_that_still_improves_is_preferred_to_one_that_does_not():
    stuck, improving = _simulate(gradient, [1, 1], [lambda _: 1000.0, lambda t: 3000.0 - t], rounds=150)
    assert improving > stuck


def test_round_robin_is_even():
    assert _simulate(round_robin, [1, 8, 2], [lambda _: 1.0] * 3, rounds=9) == [30, 30, 30]


def test_what_is_owed_goes_first():
    rich = History(100.0, floor=20, trials=500, curve=[(500, 1e9)])
    poor = History(0.1, floor=20, trials=10, curve=[(10, 1.0)])
    assert gradient([rich, poor]) == 1
    poor.exhausted = True
    assert gradient([rich, poor]) == 0


def test_exhausted_tasks_are_never_picked():
    done = History(100.0, trials=50, exhausted=True, curve=[(50, 1e6)])
    for pick in (gradient, round_robin):
        assert pick([done, History(1.0)]) == 1
        assert pick([done]) is None


def test_a_task_without_a_success_competes_and_does_not_starve_the_others():
    failing, good = _simulate(gradient, [1, 1], [lambda _: math.inf, lambda _: 100.0], rounds=40)
    assert failing >= 100 and good >= 100
