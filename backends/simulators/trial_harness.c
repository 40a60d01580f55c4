/* The guest's side of a batch of trials: every kernel of a task on the same inputs, every output compared to the bit,
 * every input compared with what it was, and guards watched before and behind each tensor and the scratch.
 *
 * `tasks.bin` holds one task behind the other. Each is words: number of trials, of examples, of inputs, of outputs, the
 * size of each tensor in bytes, the number of the memory in which each of them lies, and behind these the working
 * memory, and the number of the tensor in whose place each lies, its own or an input's; then for each example the inputs
 * and the expected outputs, each padded to 16 bytes. What does not fit its memory lies in the largest, as do the
 * examples, and what does not fit there in any that has room. A trial is a call for each example. It finds in the caches
 * what the kernel before it would leave: its inputs, just written, as far as a cache reaches; nothing else.
 * `verdicts.bin` receives one `struct verdict` as each trial ends.
 */
#include "markers.h"
#include "semihosting.h"

#define MAX_TENSORS 66 /* even, so that the stack stays aligned; TOSA joins 64 tensors */
#define WORDS (MAX_TENSORS + 2)
#define MAX_AREAS 8
#define GUARD 32u
#define UNTOUCHED 0x5a5a5a5au

struct trial {
    void (*kernel)(void);
    const void *params;
    uint32_t scratch_bytes;
};

enum outcome { EXACT, DIFFERENT, OUT_OF_BOUNDS, INPUT_CHANGED };

struct verdict {
    uint32_t outcome, tensor, offset; /* where the fault is */
};

extern const struct trial trials[];
extern const uint32_t trial_count;

/* The memories of the arena are the board's, as the other tables are the batch's. */
struct area {
    uint8_t *start;
    uint32_t size;
};

extern const struct area areas[];
extern const uint32_t largest_area, area_count;
static uint32_t used[MAX_AREAS];

static uint32_t padded(uint32_t size)
{
    return (size + 15) & ~15u;
}

static int has_room(uint32_t area, uint32_t size)
{
    return size <= areas[area].size - used[area];
}

static void *allocate(uint32_t size, uint32_t area)
{
    if (!has_room(area, size))
        area = largest_area;
    for (uint32_t other = 0; other < area_count && !has_room(area, size); other++)
        area = other;
    if (!has_room(area, size)) {
        host_print("its tensors and working memory do not fit the memory for trials\n");
        host_exit(2);
    }
    uint8_t *start = areas[area].start + used[area];
    used[area] += padded(size);
    return start;
}

/* `size` bytes with a guard on either side. */
static uint8_t *guarded(uint32_t size, uint32_t area)
{
    return (uint8_t *)allocate(padded(size + 2 * GUARD), area) + GUARD;
}

static void copy(uint32_t *to, const uint32_t *from, uint32_t size, uint32_t flip)
{
    for (uint32_t i = 0; i < padded(size) / 4; i++)
        to[i] = from[i] ^ flip;
}

static void fill(void *area, uint32_t size)
{
    uint8_t *byte = area;
    for (; (uintptr_t)byte & 3; size--)
        *byte++ = (uint8_t)UNTOUCHED;
    for (; size >= 4; size -= 4, byte += 4)
        *(uint32_t *)byte = UNTOUCHED;
    while (size--)
        *byte++ = (uint8_t)UNTOUCHED;
}

static int touched(const void *area, uint32_t size)
{
    const uint8_t *byte = area;
    for (; (uintptr_t)byte & 3; size--)
        if (*byte++ != (uint8_t)UNTOUCHED)
            return 1;
    for (; size >= 4; size -= 4, byte += 4)
        if (*(const uint32_t *)byte != UNTOUCHED)
            return 1;
    while (size--)
        if (*byte++ != (uint8_t)UNTOUCHED)
            return 1;
    return 0;
}

static int guards_touched(const uint8_t *area, uint32_t size)
{
    return touched(area - GUARD, GUARD) || touched(area + size, GUARD);
}

/* Writes what stands there already, a word of each 16 bytes, which is the shortest line of a cache. */
static void write_again(uint8_t *area, uint32_t size)
{
    for (uint32_t i = 0; i < size; i += 16) {
        volatile uint32_t *word = (volatile uint32_t *)(area + i);
        *word = *word;
    }
}

/* The offset of the first differing byte, or `size`. */
static uint32_t difference(const uint8_t *a, const uint8_t *b, uint32_t size)
{
    uint32_t i = 0;
    while (i + 4 <= size && *(const uint32_t *)(a + i) == *(const uint32_t *)(b + i))
        i += 4;
    while (i < size && a[i] == b[i])
        i++;
    return i;
}

#define QUOTE(text) #text
#define QUOTED(macro) QUOTE(macro)
#define ON_STACK "4 * (" QUOTED(MAX_TENSORS) " - 2)" /* bytes of WORDS but the first four, at most 508 */

/* Calls `kernel` with all WORDS as arguments; nothing but the call stands between the markers. The alignment keeps the
 * markers within one of QEMU's pages, as markers.h does by other means. */
__attribute__((naked, noinline, aligned(128))) static void call(__attribute__((unused)) void (*kernel)(void),
                                                                __attribute__((unused)) const uint32_t *words)
{
    __asm__("push {r4, r5, r6, lr}\n"
            "mov r4, r0\n"
            "sub sp, #" ON_STACK "\n"
            "mov r5, r1\n"
            "adds r5, #16\n"
            "mov r3, sp\n"
            "movs r6, #(" ON_STACK ") / 2\n"
            "adds r6, r6, r6\n"
            "1: subs r6, r6, #4\n"
            "ldr r2, [r5, r6]\n"
            "str r2, [r3, r6]\n"
            "bne 1b\n"
            "mov r6, r1\n"
            "ldm r6!, {r0, r1, r2, r3}\n"
            TOSAIC_BEGIN "\n"
            "blx r4\n"
            TOSAIC_END "\n"
            "add sp, #" ON_STACK "\n"
            "pop {r4, r5, r6, pc}\n");
}

/* Where the tensors of a task lie as its kernels run, where its examples begin, and how far apart these are. */
struct task {
    uint32_t trials, examples, inputs, tensors, example_bytes, sizes[MAX_TENSORS], place[MAX_TENSORS];
    uint32_t held[MAX_TENSORS]; /* the tensor that a place holds in the end */
    uint8_t *original[MAX_TENSORS], *working[MAX_TENSORS], *scratch;
};

/* The next task of a file, in memory that the task before it no longer needs. */
static void read_task(host_file file, struct task *task, const struct trial *first)
{
    uint32_t counts[4], lies_in[MAX_TENSORS + 1], scratch_bytes = 0;
    host_read(file, counts, sizeof counts);
    task->trials = counts[0], task->examples = counts[1], task->inputs = counts[2];
    task->tensors = counts[2] + counts[3], task->example_bytes = 0;
    host_read(file, task->sizes, 4 * task->tensors);
    host_read(file, lies_in, 4 * (task->tensors + 1));
    host_read(file, task->place, 4 * task->tensors);
    for (uint32_t area = 0; area < area_count; area++)
        used[area] = 0;
    for (uint32_t i = 0; i < task->tensors; i++)
        task->example_bytes += padded(task->sizes[i]);
    for (uint32_t e = 0; e < task->examples; e++)
        for (uint32_t i = 0; i < task->tensors; i++) {
            uint8_t *start = allocate(padded(task->sizes[i]), largest_area);
            host_read(file, start, padded(task->sizes[i]));
            if (e == 0)
                task->original[i] = start;
        }
    for (uint32_t i = 0; i < task->tensors; i++) {
        uint32_t place = task->place[i];
        task->working[i] = place == i ? guarded(task->sizes[i], lies_in[i]) : task->working[place];
        task->held[place] = i;
    }
    for (uint32_t t = 0; t < task->trials; t++)
        if (first[t].scratch_bytes > scratch_bytes)
            scratch_bytes = first[t].scratch_bytes;
    task->scratch = guarded(scratch_bytes, lies_in[task->tensors]);
}

/* Calls the kernel of a trial on an example, and adds to the verdict what is at fault. */
static void try(const struct task *task, const struct trial *trial, uint32_t example, struct verdict *verdict)
{
    uint32_t words[WORDS] = {0}, tensors = task->tensors, inputs = task->inputs;
    for (uint32_t i = 0; i < tensors; i++) {
        uint8_t *working = task->working[i];
        uint32_t size = task->sizes[i];
        words[i] = (uint32_t)working;
        if (task->place[i] != i)
            continue;
        copy((uint32_t *)working, (uint32_t *)(task->original[i] + example * task->example_bytes), size,
             i < inputs ? 0 : ~0u);
        fill(working - GUARD, GUARD);
        fill(working + size, GUARD);
    }
    fill(task->scratch - GUARD, trial->scratch_bytes + 2 * GUARD);
    words[tensors] = (uint32_t)trial->params;
    words[tensors + 1] = (uint32_t)task->scratch;
    TOSAIC_MARK(TOSAIC_EMPTY_CACHES);
    for (uint32_t i = 0; i < inputs; i++)
        write_again(task->working[i], task->sizes[i]);

    call(trial->kernel, words);

    for (uint32_t i = 0; i < tensors; i++) {
        uint32_t size = task->sizes[i];
        uint32_t offset = difference(task->working[i], task->original[i] + example * task->example_bytes, size);
        if (guards_touched(task->working[i], size))
            *verdict = (struct verdict){OUT_OF_BOUNDS, i, size};
        else if (offset < size && task->held[task->place[i]] == i && verdict->outcome == EXACT)
            *verdict = i < inputs ? (struct verdict){INPUT_CHANGED, i, offset}
                                  : (struct verdict){DIFFERENT, i - inputs, offset};
    }
    if (guards_touched(task->scratch, trial->scratch_bytes))
        *verdict = (struct verdict){OUT_OF_BOUNDS, tensors, trial->scratch_bytes};
}

int main(void)
{
    host_file file = host_open("tasks.bin", HOST_READ);
    host_file verdicts = host_open("verdicts.bin", HOST_WRITE);
    struct task task;
    for (uint32_t first = 0; first < trial_count; first += task.trials) {
        read_task(file, &task, trials + first);
        for (uint32_t t = first; t < first + task.trials; t++) {
            struct verdict verdict = {EXACT, 0, 0};
            for (uint32_t e = 0; e < task.examples; e++)
                try(&task, trials + t, e, &verdict);
            host_write(verdicts, &verdict, sizeof verdict);
        }
    }
    return 0;
}
