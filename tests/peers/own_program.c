/* A program as a user writes it, over libibverbs alone: two reliable connections within the process, a shared receive queue, an event channel in
 * epoll, atomics, and every byte compared. Its arguments select what else it does:
 *
 *   threads N    the same in N threads at once
 *   vfork        a child of vfork closes its parent's descriptors and executes another program
 *   fork         a child of fork cannot use the parent's device, opens its own and does the same
 *   daemon       a daemon that has closed all descriptors does the same, and its parent waits
 *   closefrom    all descriptors but the first three are closed before the device is opened
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 200, LENGTH = 3000, ROOM = 8192, MOST_THREADS = 64, HIGHEST = 1024 };

#define CHECK(what)                                                                        \
    do {                                                                                   \
        if (!(what)) {                                                                     \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno));        \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

struct end {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    char *memory;
};

static struct ibv_context *open_first(void) {
    struct ibv_device **devices = ibv_get_device_list(NULL);
    CHECK(devices && devices[0]);
    struct ibv_context *context = ibv_open_device(devices[0]);
    ibv_free_device_list(devices);
    return context;
}

static void make(struct end *end) {
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 16, .max_sge = 1}};
    CHECK(end->context = open_first());
    CHECK(end->pd = ibv_alloc_pd(end->context));
    CHECK(end->channel = ibv_create_comp_channel(end->context));
    CHECK(end->cq = ibv_create_cq(end->context, 64, NULL, end->channel, 0));
    CHECK(end->srq = ibv_create_srq(end->pd, &shared));
    /* Whole pages, because the pages of a region are missing in a forked child. */
    CHECK(end->memory = aligned_alloc(4096, ROOM));
    memset(end->memory, 0, ROOM);
    CHECK(end->mr = ibv_reg_mr(end->pd, end->memory, ROOM, access));
    struct ibv_qp_init_attr queues = {.send_cq = end->cq, .recv_cq = end->cq, .srq = end->srq, .qp_type = IBV_QPT_RC,
                                      .cap = {.max_send_wr = 16, .max_send_sge = 1}};
    CHECK(end->qp = ibv_create_qp(end->pd, &queues));
}

static void connect_to(struct end *end, struct end *peer) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
    CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp->qp_num,
                                .max_dest_rd_atomic = 4, .min_rnr_timer = 12};
    attr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}};
    CHECK(!ibv_query_gid(peer->context, 1, 0, &attr.ah_attr.grh.dgid));
    CHECK(!ibv_modify_qp(end->qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                             IBV_QP_MIN_RNR_TIMER));
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
    CHECK(!ibv_modify_qp(end->qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static struct ibv_wc completion(struct end *end) {
    struct ibv_wc wc;
    int found;
    do
        found = ibv_poll_cq(end->cq, 1, &wc);
    while (found == 0);
    CHECK(found == 1);
    CHECK(wc.status == IBV_WC_SUCCESS);
    return wc;
}

/* Sends a message; its receiver sleeps in epoll until the event arrives. */
static void exchange(struct end *from, struct end *to, int epoll, int round) {
    struct ibv_sge place = {(uintptr_t)to->memory, LENGTH, to->mr->lkey}, bytes = {(uintptr_t)from->memory, LENGTH, from->mr->lkey};
    struct ibv_recv_wr receive = {.sg_list = &place, .num_sge = 1}, *bad_receive;
    struct ibv_send_wr send = {.sg_list = &bytes, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad_send;
    struct epoll_event event;
    struct ibv_cq *cq;
    void *own;
    for (int i = 0; i < LENGTH; i++)
        from->memory[i] = (char)(round * 7 + i);
    CHECK(!ibv_req_notify_cq(to->cq, 0));
    CHECK(!ibv_post_srq_recv(to->srq, &receive, &bad_receive));
    CHECK(!ibv_post_send(from->qp, &send, &bad_send));
    CHECK(epoll_wait(epoll, &event, 1, 20000) == 1);
    CHECK(!ibv_get_cq_event(to->channel, &cq, &own) && cq == to->cq);
    ibv_ack_cq_events(cq, 1);
    CHECK(completion(to).byte_len == LENGTH);
    completion(from);
    CHECK(!memcmp(from->memory, to->memory, LENGTH));
}

static void add(struct end *from, struct end *to) {
    struct ibv_sge place = {(uintptr_t)from->memory, 8, from->mr->lkey};
    struct ibv_send_wr add = {.sg_list = &place, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED}, *bad;
    uint64_t *counter = (uint64_t *)to->memory, *before = (uint64_t *)from->memory;
    add.wr.atomic.remote_addr = (uintptr_t)counter;
    add.wr.atomic.rkey = to->mr->rkey;
    add.wr.atomic.compare_add = 5;
    *counter = 0;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        CHECK(!ibv_post_send(from->qp, &add, &bad));
        completion(from);
        CHECK(*before == 5 * i);
    }
    CHECK(*counter == 5 * ROUNDS);
}

static void destroy(struct end *end) {
    CHECK(!ibv_destroy_qp(end->qp) && !ibv_destroy_srq(end->srq) && !ibv_destroy_cq(end->cq));
    CHECK(!ibv_dereg_mr(end->mr) && !ibv_dealloc_pd(end->pd) && !ibv_destroy_comp_channel(end->channel));
    CHECK(!ibv_close_device(end->context));
    free(end->memory);
}

static void *work(void *unused) {
    struct end a = {0}, b = {0};
    make(&a);
    make(&b);
    connect_to(&a, &b);
    connect_to(&b, &a);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event wanted = {.events = EPOLLIN};
    CHECK(epoll >= 0 && !epoll_ctl(epoll, EPOLL_CTL_ADD, b.channel->fd, &wanted));
    for (int round = 0; round < ROUNDS; round++)
        exchange(&a, &b, epoll, round);
    add(&a, &b);
    destroy(&a);
    destroy(&b);
    close(epoll);
    return unused;
}

static void in_threads(int count) {
    pthread_t threads[MOST_THREADS];
    CHECK(count > 0 && count <= MOST_THREADS);
    for (int i = 0; i < count; i++)
        CHECK(!pthread_create(&threads[i], NULL, work, NULL));
    for (int i = 0; i < count; i++)
        CHECK(!pthread_join(threads[i], NULL));
}

static void close_all(void) {
    for (int descriptor = 3; descriptor < HIGHEST; descriptor++)
        close(descriptor);
}

static void wait_for(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The child does not affect the open device, which the parent goes on using. */
static void with_child_of_vfork(void) {
    struct end end = {0};
    make(&end);
    pid_t child = vfork();
    if (child == 0) {
        close_all();
        execlp("true", "true", NULL);
        _exit(1);
    }
    wait_for(child);
    destroy(&end);
    work(NULL);
}

static void with_child_of_fork(void) {
    struct ibv_port_attr port;
    CHECK(!ibv_fork_init());
    struct end end = {0};
    make(&end);
    pid_t child = fork();
    if (child == 0) {
        CHECK(!ibv_alloc_pd(end.context));
        work(NULL);
        _exit(0);
    }
    work(NULL);
    wait_for(child);
    CHECK(!ibv_query_port(end.context, 1, &port) && port.state == IBV_PORT_ACTIVE);
    destroy(&end);
}

/* The parent notices the end of the daemon by a pipe that the daemon holds open. */
static void as_daemon(void) {
    int ends[2];
    char good = 0;
    CHECK(!pipe(ends));
    if (fork() == 0) {
        CHECK(!daemon(0, 0));
        dup2(ends[1], 0);
        close_all();
        work(NULL);
        CHECK(write(0, "1", 1) == 1);
        _exit(0);
    }
    close(ends[1]);
    CHECK(read(ends[0], &good, 1) == 1 && good == '1');
}

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "threads";
    if (!strcmp(mode, "threads"))
        in_threads(count > 2 ? atoi(arguments[2]) : 1);
    else if (!strcmp(mode, "vfork"))
        with_child_of_vfork();
    else if (!strcmp(mode, "fork"))
        with_child_of_fork();
    else if (!strcmp(mode, "daemon"))
        as_daemon();
    else if (!strcmp(mode, "closefrom"))
        close_all(), work(NULL);
    else
        return fprintf(stderr, "%s is not known\n", mode), 2;
    printf("%s: every byte is right\n", mode);
}
