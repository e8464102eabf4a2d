package scenarios

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/retry"

	"binnacle/e2e/harness"
)

const (
	// haPorts is the number of consecutive ports that `binnacle ha` uses.
	haPorts = 35
	// haPatience bounds each phase.
	haPatience = time.Minute
	writers    = 4
	watchers   = 3
	writePause = 10 * time.Millisecond
)

// change is a write that a client made or a watcher received.
type change struct {
	Type            watch.EventType
	Name            string
	ResourceVersion string // "" for deletions, whose version the response does not contain
}

// TestRollingRestart restarts every process of a replicated suite, one at a time, while stock
// clients write and watch. Every write succeeds with the retries of a stock client, and no watcher
// misses a change or gets one twice. A watcher whose revision is older than the history of a
// restarted server lists again, as informers do.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	supervisor := harness.NewProcess(t, "binnacle", harness.Binary(t, harness.Everything))
	supervisor.Start("ha", "--dir="+dir, "--port="+strconv.Itoa(harness.FreePorts(t, haPorts)))
	waitForOutput(t, supervisor, "all services are ready")
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // the load is bounded by the writers' pauses
	client := harness.ClientFor(t, config)
	createNamespace(t, client, "load")
	list, err := client.CoreV1().ConfigMaps("load").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	seen := make([]*recorder, watchers)
	for i := range seen {
		seen[i] = startRecorder(ctx, harness.ClientFor(t, config), list.ResourceVersion)
	}
	writing, stopWriting := context.WithCancel(ctx)
	var group sync.WaitGroup
	load := make([]*loadWriter, writers)
	for i := range load {
		load[i] = &loadWriter{t: t, maps: harness.ClientFor(t, config).CoreV1().ConfigMaps("load")}
		group.Go(func() { load[i].run(writing, fmt.Sprintf("w%d", i)) })
	}
	if err := syscall.Kill(supervisor.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	waitForOutput(t, supervisor, "rolling restart: done")
	stopWriting()
	group.Wait()

	var all []change
	retried := 0
	for _, w := range load {
		all, retried = append(all, w.done...), retried+w.retried
	}
	t.Logf("%d writes, %d retries", len(all), retried)
	end, err := client.CoreV1().ConfigMaps("load").Create(t.Context(), configMap("end", ""), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, change{watch.Added, end.Name, end.ResourceVersion})
	for i, r := range seen {
		harness.Eventually(t, haPatience, fmt.Sprintf("watcher %d has seen everything", i), func() error {
			return r.checkReached(uint64(parseRevision(t, end.ResourceVersion)))
		})
		r.check(t, all, retried > 0)
	}
	stop()
	if err := supervisor.Stop(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
}

// waitForOutput waits until the output of the supervisor contains a text.
func waitForOutput(t *testing.T, process *harness.Process, text string) {
	t.Helper()
	harness.Eventually(t, haPatience, "the output "+text, func() error {
		if !process.Running() {
			t.Fatalf("the supervisor has exited before the output %q", text)
		}
		if !strings.Contains(process.Log(), text) {
			return fmt.Errorf("the output does not contain %q", text)
		}
		return nil
	})
}

// loadWriter writes as controllers do: after an error it reads the object and tries again.
type loadWriter struct {
	t       *testing.T
	maps    corev1client.ConfigMapInterface
	done    []change
	retried int // number of requests that failed after the retries of client-go
	// again reports whether an error is retried; nil means temporary.
	again func(error) bool
	// keepInterval is the interval of config maps that are not deleted; 0 deletes all.
	keepInterval int
	kept         []string
}

// run creates, changes and deletes config maps until ctx ends. A request is not cancelled with ctx.
func (w *loadWriter) run(ctx context.Context, prefix string) {
	pause := time.NewTicker(writePause)
	defer pause.Stop()
	for sequence := 0; ctx.Err() == nil; sequence++ {
		name := fmt.Sprintf("%s-%d", prefix, sequence)
		w.send(watch.Added, name, func(c context.Context) (*corev1.ConfigMap, error) {
			return w.maps.Create(c, configMap(name, "0"), metav1.CreateOptions{})
		})
		for i := range 3 {
			<-pause.C
			w.send(watch.Modified, name, func(c context.Context) (*corev1.ConfigMap, error) {
				m, err := w.maps.Get(c, name, metav1.GetOptions{})
				if err != nil {
					return nil, err
				}
				m.Data["value"] = strconv.Itoa(i + 1)
				return w.maps.Update(c, m, metav1.UpdateOptions{})
			})
		}
		if w.keepInterval > 0 && sequence%w.keepInterval == 0 {
			w.kept = append(w.kept, name)
			continue
		}
		w.send(watch.Deleted, name, func(c context.Context) (*corev1.ConfigMap, error) {
			return &corev1.ConfigMap{}, w.maps.Delete(c, name, metav1.DeleteOptions{})
		})
	}
}

// send retries one write until it succeeds. The outcome of an interrupted request is unknown, so
// AlreadyExists and NotFound count as success after a retry.
func (w *loadWriter) send(kind watch.EventType, name string, request func(context.Context) (*corev1.ConfigMap, error)) {
	start := time.Now()
	again, backoff := w.again, retry.DefaultBackoff
	if again == nil {
		again = isTemporary
	} else {
		backoff.Steps += 4 // an election of a leader takes longer
	}
	err := retry.OnError(backoff, again, func() error {
		m, err := request(w.t.Context())
		switch {
		case err == nil:
			w.done = append(w.done, change{kind, name, m.ResourceVersion})
			return nil
		case w.retried > 0 && (kind == watch.Added && apierrors.IsAlreadyExists(err) ||
			kind == watch.Deleted && apierrors.IsNotFound(err)):
			w.done = append(w.done, change{kind, name, ""})
			return nil
		}
		w.retried++
		w.t.Logf("%s %s failed after %s: %v", kind, name, time.Since(start), err)
		return err
	})
	if err != nil {
		w.t.Errorf("%s %s: %v", kind, name, err)
	}
}

// isTemporary reports whether controllers retry after an error.
func isTemporary(err error) bool {
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) || apierrors.IsConflict(err)
}

// recorder is a watcher and the events that it received.
type recorder struct {
	maps corev1client.ConfigMapInterface

	mu   sync.Mutex
	seen []change
	last uint64
	errs []string
	// gaps holds ranges of revisions without events: after "too old" (410) the recorder listed
	// again, as informers do.
	gaps [][2]uint64
}

// startRecorder follows the load as client-go's reflectors do.
func startRecorder(ctx context.Context, c *kubernetes.Clientset, from string) *recorder {
	started := &recorder{maps: c.CoreV1().ConfigMaps("load")}
	listWatch := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return started.maps.Watch(ctx, o)
	}}
	go func() { // ends with ctx
		for ctx.Err() == nil {
			retryWatcher, err := watchtools.NewRetryWatcherWithContext(ctx, from, listWatch)
			if err != nil {
				started.addViolation("watch: %v", err)
				return
			}
			for e := range retryWatcher.ResultChan() {
				started.recordEvent(e)
			}
			if from, err = started.listAndReset(ctx); err != nil {
				return
			}
		}
	}()
	return started
}

// addViolation records an error.
func (r *recorder) addViolation(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, fmt.Sprintf(format, args...))
}

// recordEvent records an event and checks that revisions increase.
func (r *recorder) recordEvent(event watch.Event) {
	configMap, ok := event.Object.(*corev1.ConfigMap)
	if !ok {
		if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) {
			r.addViolation("%s: %v", event.Type, err)
		}
		return
	}
	if configMap.Name == "kube-root-ca.crt" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := change{event.Type, configMap.Name, configMap.ResourceVersion}
	n, err := strconv.ParseUint(configMap.ResourceVersion, 10, 64)
	if err != nil || n <= r.last {
		r.errs = append(r.errs, fmt.Sprintf("%v after revision %d", c, r.last))
	}
	r.last = n
	r.seen = append(r.seen, c)
}

// listAndReset lists everything again and records the gap.
func (r *recorder) listAndReset(ctx context.Context) (string, error) {
	list, err := r.maps.List(ctx, metav1.ListOptions{})
	for err != nil && ctx.Err() == nil && isTemporary(err) {
		list, err = r.maps.List(ctx, metav1.ListOptions{})
	}
	if err != nil {
		if ctx.Err() == nil {
			r.addViolation("list: %v", err)
		}
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err != nil || n < r.last {
		r.errs = append(r.errs, fmt.Sprintf("a list at %s after revision %d", list.ResourceVersion, r.last))
	}
	r.gaps = append(r.gaps, [2]uint64{r.last, n})
	r.last = n
	return list.ResourceVersion, nil
}

// checkReached returns an error unless all events up to a revision were received.
func (r *recorder) checkReached(revision uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last >= revision {
		return nil
	}
	return fmt.Errorf("%d changes up to revision %d of %d; errors: %v", len(r.seen), r.last, revision, r.errs)
}

// isInGap reports whether the change to a version may be in a gap.
func (r *recorder) isInGap(version string) bool {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil { // "" for a deletion
		return len(r.gaps) > 0
	}
	for _, g := range r.gaps {
		if n > g[0] && n <= g[1] {
			return true
		}
	}
	return false
}

// check compares the received events with the writes. more reports whether requests were
// interrupted, so that there may be further changes.
func (r *recorder) check(t *testing.T, written []change, more bool) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.errs) > 0 {
		t.Errorf("errors and events out of order: %v, want none", r.errs)
	}
	seen := map[change]int{}
	for _, c := range r.seen {
		if c.Type == watch.Deleted {
			c.ResourceVersion = ""
		}
		seen[c]++
	}
	want := map[change]bool{}
	for _, c := range written {
		want[c] = true
		known := c.ResourceVersion != "" || c.Type == watch.Deleted // otherwise the outcome is unknown
		if known && seen[c] != 1 && !r.isInGap(c.ResourceVersion) {
			t.Errorf("got %d events %v, want 1", seen[c], c)
		}
	}
	for c, n := range seen {
		if n > 1 || !want[c] && !more {
			t.Errorf("got %d events %v, written: %t", n, c, want[c])
		}
	}
	t.Logf("%d events, %d times listed again: %v", len(r.seen), len(r.gaps), r.gaps)
}
