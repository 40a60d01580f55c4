/* QEMU TCG plugin: how often each basic block follows another between the guest's `dbg #1` and `dbg #2`, and what each
 * memory is asked for there.
 *
 * Both markers are architectural NOPs. Arguments: out=FILE, limit=N (guest instructions a region may execute before the
 * run is ended), and memory=BASE:SIZE for each memory to watch. FILE is text, one record a line:
 *     B id pc bytes instructions      a block of translated code, before its first use
 *     E from to count                 block `to` ran `count` times right after `from` in the region that follows
 *     M number read written jumps     bytes of the memory in the region that follows, and reads that began a new stream
 *     R first begin last end          end of a region: the blocks that hold its markers, and the markers' places there
 *     L                               the region that was running reached the limit; the run ended here
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The part of QEMU's plugin interface, version 1, that is used here; Debian's QEMU ships no header for it. */
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef uint32_t qemu_plugin_meminfo_t;
enum { QEMU_PLUGIN_CB_NO_REGS = 0, QEMU_PLUGIN_MEM_RW = 3 };
typedef void (*qemu_plugin_tb_translated)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*qemu_plugin_executed)(unsigned vcpu, void *user);
typedef void (*qemu_plugin_accessed)(unsigned vcpu, qemu_plugin_meminfo_t, uint64_t address, void *user);
typedef void (*qemu_plugin_at_exit)(qemu_plugin_id_t, void *user);
extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, qemu_plugin_tb_translated);
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, qemu_plugin_executed, int flags, void *user);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, qemu_plugin_executed, int flags, void *user);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, qemu_plugin_accessed, int flags, int access, void *user);
extern bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);
extern unsigned qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t);
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, qemu_plugin_at_exit, void *user);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t index);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
__attribute__((visibility("default"))) int qemu_plugin_version = 1;

enum { EXIT_LIMIT = 124 };
enum { MEMORIES = 4096, STREAMS = 8, NEAR = 32 };

/* A read within NEAR bytes of the last one of a stream continues that stream; any other begins one, in the place of the
 * oldest. */
struct memory {
    uint32_t base, size;
    uint64_t read, written, jumps;
    uint32_t streams[STREAMS], stream_count, latest;
};

struct block;

struct edge {
    struct block *to;
    uint64_t count;
    uint32_t region; /* the region `count` belongs to */
};

struct block {
    uint32_t id, pc, bytes, instructions;
    bool printed;
    struct edge *edges;
    uint32_t edge_count, edge_capacity;
};

struct marker {
    struct block *block;
    uint32_t index; /* among the block's instructions */
};

struct touched {
    struct block *from;
    uint32_t edge;
};

static FILE *out;
static uint64_t limit = UINT64_MAX, executed;
static uint32_t block_count, region;
static bool recording;
static struct marker begin;
static struct block *current;
static struct touched *touched;
static size_t touched_count, touched_capacity;
static struct memory memories[MEMORIES];
static uint32_t memory_count, memory_at;

static void *grown(void *array, size_t capacity, size_t element)
{
    void *result = realloc(array, capacity * element);
    if (!result) {
        fputs("tosaic plugin: out of memory\n", stderr);
        exit(1);
    }
    return result;
}

static uint32_t edge_to(struct block *from, struct block *to)
{
    for (uint32_t i = 0; i < from->edge_count; i++)
        if (from->edges[i].to == to)
            return i;
    if (from->edge_count == from->edge_capacity) {
        from->edge_capacity = from->edge_capacity ? 2 * from->edge_capacity : 2;
        from->edges = grown(from->edges, from->edge_capacity, sizeof *from->edges);
    }
    from->edges[from->edge_count] = (struct edge){.to = to};
    return from->edge_count++;
}

static void first_in_region(struct block *from, uint32_t index)
{
    from->edges[index].region = region;
    from->edges[index].count = 0;
    if (touched_count == touched_capacity) {
        touched_capacity = touched_capacity ? 2 * touched_capacity : 256;
        touched = grown(touched, touched_capacity, sizeof *touched);
    }
    touched[touched_count++] = (struct touched){from, index};
}

static void on_block(unsigned vcpu, void *user)
{
    (void)vcpu;
    if (!recording)
        return;
    struct block *to = user;
    uint32_t index = edge_to(current, to);
    if (current->edges[index].region != region)
        first_in_region(current, index);
    current->edges[index].count++;
    current = to;
    executed += to->instructions;
    if (executed > limit) {
        fputs("L\n", out);
        fclose(out);
        _exit(EXIT_LIMIT);
    }
}

static bool continues(const struct memory *memory, uint32_t stream, uint32_t address)
{
    return address - memory->streams[stream] + NEAR <= 2 * NEAR;
}

static void follow(struct memory *memory, uint32_t address)
{
    uint32_t stream = memory->latest;
    if (!memory->stream_count || !continues(memory, stream, address)) {
        for (stream = 0; stream < STREAMS && stream < memory->stream_count; stream++)
            if (continues(memory, stream, address))
                break;
        if (stream == STREAMS || stream == memory->stream_count)
            stream = (uint32_t)(memory->jumps++ % STREAMS);
        if (stream == memory->stream_count)
            memory->stream_count++;
    }
    memory->streams[stream] = address;
    memory->latest = stream;
}

static void on_access(unsigned vcpu, qemu_plugin_meminfo_t access, uint64_t at, void *user)
{
    (void)vcpu;
    (void)user;
    uint32_t address = (uint32_t)at, bytes = 1u << qemu_plugin_mem_size_shift(access);
    if (!recording)
        return;
    if (address - memories[memory_at].base >= memories[memory_at].size) {
        for (memory_at = 0; memory_at < memory_count; memory_at++)
            if (address - memories[memory_at].base < memories[memory_at].size)
                break;
        if (memory_at == memory_count) {
            memory_at = 0;
            return;
        }
    }
    struct memory *memory = &memories[memory_at];
    if (qemu_plugin_mem_is_store(access)) {
        memory->written += bytes;
        return;
    }
    memory->read += bytes;
    follow(memory, address);
}

static void print_block(struct block *block)
{
    if (block->printed)
        return;
    block->printed = true;
    fprintf(out, "B %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 "\n", block->id, block->pc, block->bytes,
            block->instructions);
}

static void on_begin(unsigned vcpu, void *user)
{
    (void)vcpu;
    begin = *(struct marker *)user;
    current = begin.block;
    recording = true;
    region++;
    executed = 0;
    touched_count = 0;
    for (uint32_t i = 0; i < memory_count; i++)
        memories[i] = (struct memory){.base = memories[i].base, .size = memories[i].size};
}

static void on_end(unsigned vcpu, void *user)
{
    (void)vcpu;
    const struct marker *end = user;
    if (!recording)
        return;
    recording = false;
    print_block(begin.block);
    for (size_t i = 0; i < touched_count; i++) {
        const struct edge *edge = &touched[i].from->edges[touched[i].edge];
        print_block(edge->to);
        fprintf(out, "E %" PRIu32 " %" PRIu32 " %" PRIu64 "\n", touched[i].from->id, edge->to->id, edge->count);
    }
    for (uint32_t i = 0; i < memory_count; i++)
        fprintf(out, "M %" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", i, memories[i].read, memories[i].written,
                memories[i].jumps);
    fprintf(out, "R %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 "\n", begin.block->id, begin.index, end->block->id,
            end->index);
    fflush(out);
}

/* 1 or 2 for `dbg #1` and `dbg #2` (T32 encoding f3af 80fN, halfwords little-endian), else 0. */
static int marker_number(const struct qemu_plugin_insn *instruction)
{
    const uint8_t *byte = qemu_plugin_insn_data(instruction);
    if (qemu_plugin_insn_size(instruction) != 4 || byte[0] != 0xaf || byte[1] != 0xf3 || byte[3] != 0x80)
        return 0;
    return byte[2] == 0xf1 ? 1 : byte[2] == 0xf2 ? 2 : 0;
}

static void on_translated(qemu_plugin_id_t plugin, struct qemu_plugin_tb *tb)
{
    (void)plugin;
    struct block *block = grown(NULL, 1, sizeof *block);
    *block = (struct block){.id = block_count++,
                            .pc = (uint32_t)qemu_plugin_tb_vaddr(tb),
                            .instructions = (uint32_t)qemu_plugin_tb_n_insns(tb)};
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, QEMU_PLUGIN_CB_NO_REGS, block);
    for (size_t i = 0; i < block->instructions; i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(tb, i);
        block->bytes += (uint32_t)qemu_plugin_insn_size(instruction);
        if (memory_count)
            qemu_plugin_register_vcpu_mem_cb(instruction, on_access, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, NULL);
        int number = marker_number(instruction);
        if (!number)
            continue;
        struct marker *marker = grown(NULL, 1, sizeof *marker);
        *marker = (struct marker){block, (uint32_t)i};
        qemu_plugin_register_vcpu_insn_exec_cb(instruction, number == 1 ? on_begin : on_end, QEMU_PLUGIN_CB_NO_REGS,
                                               marker);
    }
}

static void on_exit_of_qemu(qemu_plugin_id_t plugin, void *user)
{
    (void)plugin;
    (void)user;
    fclose(out);
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t plugin, const void *info, int argc,
                                                               char **argv)
{
    (void)info;
    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "out=", 4))
            out = fopen(argv[i] + 4, "w");
        else if (!strncmp(argv[i], "limit=", 6))
            limit = strtoull(argv[i] + 6, NULL, 10);
        else if (memory_count < MEMORIES && sscanf(argv[i], "memory=%" SCNu32 ":%" SCNu32, &memories[memory_count].base,
                                                   &memories[memory_count].size) == 2)
            memory_count++;
    }
    if (!out) {
        fputs("tosaic plugin: cannot write its output file\n", stderr);
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, on_translated);
    qemu_plugin_register_atexit_cb(plugin, on_exit_of_qemu, NULL);
    return 0;
}
