/* QEMU TCG plugin: how often each basic block follows another between the guest's `mov r9, r9` and `mov r10, r10`, and what
 * each memory is asked for there, through the caches that the core reaches it by.
 *
 * The markers change nothing. Caches are empty at reset, and keep what they hold from one region to the next; what runs
 * between regions does not pass through them. `mov r11, r11` writes them back and empties them, as firmware does around a
 * call of an NPU. Outside of a region, loads and stores then pass through them uncounted to the next `mov r9, r9`: so a
 * program states what a region finds in them.
 *
 * Arguments: out=FILE, limit=N (guest instructions a region may execute before the run is ended),
 * cache=SIZE:WAYS:LINE:POLICY:WRITES for each cache (POLICY 0 replaces the least recently used line of a set, 1 the
 * oldest, 2 a random one; WRITES 0 writes lines back, 1 writes through), and memory=BASE:SIZE:DATA:CODE for each memory
 * to watch, with the numbers of the caches of its data and its code, or -1. FILE is text, one record a line:
 *     B id pc bytes instructions      a block of translated code, before its first use
 *     E from to count                 block `to` ran `count` times right after `from` in the region that follows
 *     M number read written filled written-back fetched
 *                                     of a memory that is asked for something in the region that follows: bytes of
 *                                     loads and stores, lines of its
 *                                     data cache that were filled and written back, lines of code that were filled
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
enum { MEMORIES = 4096, CACHES = 4096 };

/* A place for a line; `number` is its address divided by the bytes of a line. */
struct place {
    uint32_t number;
    uint16_t memory;
    bool valid, dirty;
};

/* The places of a set stand one behind the other, from the newest to the one that is replaced next. */
struct cache {
    uint32_t ways, line_bits, sets, policy;
    bool through, is_shared; /* by code and data */
    uint32_t random;
    struct place *places;
};

enum { LEAST_RECENTLY_USED, OLDEST, RANDOM };

struct requests {
    uint64_t read, written, filled, written_back, fetched;
};

struct memory {
    uint32_t base, size;
    struct cache *data, *code;
    struct requests asked;
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
    struct memory *code; /* where it lies, if that is watched */
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
static bool recording, warming;
static struct block *fetched_last;
static struct marker begin;
static struct block *current;
static struct touched *touched;
static size_t touched_count, touched_capacity;
static struct memory memories[MEMORIES];
static uint32_t memory_count, memory_at;
static uint16_t by_base[MEMORIES]; /* numbers of memories, which do not overlap, in the order of their addresses */
static struct cache caches[CACHES];
static uint32_t cache_count;

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

/* The memory that holds `address`, or NULL. */
static struct memory *memory_of(uint32_t address)
{
    if (address - memories[memory_at].base < memories[memory_at].size)
        return memories + memory_at;
    uint32_t low = 0, high = memory_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (memories[by_base[middle]].base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low || address - memories[by_base[low - 1]].base >= memories[by_base[low - 1]].size)
        return NULL;
    memory_at = by_base[low - 1];
    return memories + memory_at;
}

static void empty_caches(void)
{
    for (uint32_t i = 0; i < cache_count; i++) {
        for (uint32_t p = 0; p < caches[i].sets * caches[i].ways; p++)
            if (caches[i].places[p].valid && caches[i].places[p].dirty)
                memories[caches[i].places[p].memory].asked.written_back++;
        memset(caches[i].places, 0, caches[i].sets * caches[i].ways * sizeof *caches[i].places);
        caches[i].random = 1;
    }
    fetched_last = NULL;
}

static void move_to_front(struct place *set, uint32_t way, struct place place)
{
    for (; way; way--)
        set[way] = set[way - 1];
    set[0] = place;
}

/* A full set's place that the next line takes: free places stand behind the others. */
static uint32_t victim(struct cache *cache, const struct place *set)
{
    if (cache->policy != RANDOM || !set[cache->ways - 1].valid)
        return cache->ways - 1;
    cache->random = cache->random * 1664525u + 1013904223u; /* Numerical Recipes, 7.1 */
    return (uint32_t)((uint64_t)cache->random * cache->ways >> 32);
}

/* Looks up one line; true where it had to be filled. */
static bool fills(struct cache *cache, uint32_t number, uint16_t memory, bool store)
{
    struct place *set = cache->places + number % cache->sets * cache->ways;
    bool dirties = store && !cache->through;
    for (uint32_t way = 0; way < cache->ways && set[way].valid; way++)
        if (set[way].number == number) {
            set[way].dirty |= dirties;
            if (way && cache->policy == LEAST_RECENTLY_USED)
                move_to_front(set, way, set[way]);
            return false;
        }
    if (store && cache->through)
        return false;
    uint32_t way = victim(cache, set);
    if (set[way].valid && set[way].dirty)
        memories[set[way].memory].asked.written_back++;
    move_to_front(set, way, (struct place){number, memory, true, dirties});
    return true;
}

/* Looks up all lines that `bytes` at `address` touch; how many had to be filled. */
static uint32_t lines_filled(struct cache *cache, uint32_t address, uint32_t bytes, uint16_t memory, bool store)
{
    uint32_t found = 0, last = (address + bytes - 1) >> cache->line_bits;
    for (uint32_t number = address >> cache->line_bits; number <= last; number++)
        found += fills(cache, number, memory, store);
    return found;
}

/* What the core executes next. The lines of a block that runs again at once are the newest of their sets already. */
static void fetch(struct block *block)
{
    struct memory *memory = block->code;
    if (!memory || !memory->code || (block == fetched_last && !memory->code->is_shared))
        return;
    fetched_last = block;
    memory->asked.fetched += lines_filled(memory->code, block->pc, block->bytes, (uint16_t)(memory - memories), false);
}

static void on_block(unsigned vcpu, void *user)
{
    (void)vcpu;
    if (!recording)
        return;
    struct block *to = user;
    fetch(to);
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

static void on_access(unsigned vcpu, qemu_plugin_meminfo_t access, uint64_t at, void *user)
{
    (void)vcpu;
    (void)user;
    if (!recording && !warming)
        return;
    uint32_t address = (uint32_t)at, bytes = 1u << qemu_plugin_mem_size_shift(access);
    struct memory *memory = memory_of(address);
    if (!memory)
        return;
    bool store = qemu_plugin_mem_is_store(access);
    if (store)
        memory->asked.written += bytes;
    else
        memory->asked.read += bytes;
    if (memory->data)
        memory->asked.filled += lines_filled(memory->data, address, bytes, (uint16_t)(memory - memories), store);
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
    warming = false;
    region++;
    executed = 0;
    touched_count = 0;
    fetched_last = NULL;
    for (uint32_t i = 0; i < memory_count; i++)
        memories[i].asked = (struct requests){0};
    fetch(begin.block);
}

static void on_empty(unsigned vcpu, void *user)
{
    (void)vcpu;
    (void)user;
    empty_caches();
    warming = !recording;
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
    for (uint32_t i = 0; i < memory_count; i++) {
        const struct requests *asked = &memories[i].asked;
        if (asked->read || asked->written || asked->filled || asked->written_back || asked->fetched)
            fprintf(out, "M %" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", i, asked->read,
                asked->written, asked->filled, asked->written_back, asked->fetched);
    }
    fprintf(out, "R %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 "\n", begin.block->id, begin.index, end->block->id,
            end->index);
    fflush(out);
}

/* The number of one of the markers (encodings 46c9, 46d2, 46db; halfwords little-endian), else 0. At the end of a page
 * QEMU shows more than these two bytes. */
static int marker_number(const struct qemu_plugin_insn *instruction)
{
    const uint8_t *byte = qemu_plugin_insn_data(instruction);
    if (byte[1] != 0x46)
        return 0;
    return byte[0] == 0xc9 ? 1 : byte[0] == 0xd2 ? 2 : byte[0] == 0xdb ? 3 : 0;
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
        static const qemu_plugin_executed at_marker[] = {NULL, on_begin, on_end, on_empty};
        qemu_plugin_register_vcpu_insn_exec_cb(instruction, at_marker[number], QEMU_PLUGIN_CB_NO_REGS, marker);
    }
    block->code = memory_count ? memory_of(block->pc) : NULL;
}

static void on_exit_of_qemu(qemu_plugin_id_t plugin, void *user)
{
    (void)plugin;
    (void)user;
    fclose(out);
}

static bool add_cache(const char *argument)
{
    uint32_t size, ways, line, policy, through;
    if (cache_count == CACHES || sscanf(argument, "cache=%" SCNu32 ":%" SCNu32 ":%" SCNu32 ":%" SCNu32 ":%" SCNu32, &size,
                                        &ways, &line, &policy, &through) != 5)
        return false;
    struct cache *cache = caches + cache_count++;
    *cache = (struct cache){.ways = ways, .sets = size / line / ways, .policy = policy, .through = through};
    while (line >>= 1)
        cache->line_bits++;
    cache->places = grown(NULL, cache->sets * ways, sizeof *cache->places);
    memset(cache->places, 0, cache->sets * ways * sizeof *cache->places);
    return true;
}

static bool add_memory(const char *argument)
{
    struct memory *memory = memories + memory_count;
    int32_t data, code;
    if (memory_count == MEMORIES || sscanf(argument, "memory=%" SCNu32 ":%" SCNu32 ":%" SCNd32 ":%" SCNd32, &memory->base,
                                           &memory->size, &data, &code) != 4)
        return false;
    memory->data = data < 0 ? NULL : caches + data;
    memory->code = code < 0 ? NULL : caches + code;
    if (data >= 0 && data == code)
        memory->code->is_shared = true;
    uint32_t place = memory_count++;
    for (; place && memories[by_base[place - 1]].base >= memory->base; place--)
        by_base[place] = by_base[place - 1];
    by_base[place] = (uint16_t)(memory - memories);
    return true;
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
        else if (!add_cache(argv[i]) && !add_memory(argv[i])) {
            fprintf(stderr, "tosaic plugin: `%s` is no argument of it\n", argv[i]);
            return 1;
        }
    }
    empty_caches();
    if (!out) {
        fputs("tosaic plugin: cannot write its output file\n", stderr);
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, on_translated);
    qemu_plugin_register_atexit_cb(plugin, on_exit_of_qemu, NULL);
    return 0;
}
