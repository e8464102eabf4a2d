package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"binnacle/e2e/harness"
)

const (
	informerNamespaces = 2
	startObjects       = 40
	writesPerPhase     = 150
	settleTime         = 60 * time.Second
)

// TestInformers compares the stores and notifications of client-go's informers, in both wire
// formats, with the written objects, while objects change and the server stops or is killed and
// restarts.
func TestInformers(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	client := server.Client()
	var namespaces []string
	for i := range informerNamespaces {
		namespaces = append(namespaces, "informers-"+strconv.Itoa(i))
		createNamespace(t, client, namespaces[i])
	}
	changes := &writer{client: client, namespaces: namespaces, live: map[string]string{}}
	for range startObjects {
		changes.create(t)
	}
	observers := map[string]*observer{}
	for name, config := range clientConfigs(server) {
		observers[name] = startObserver(t, harness.ClientFor(t, config))
	}
	for _, phase := range []struct {
		name    string
		restart func()
	}{
		{name: "running", restart: func() {}},
		{name: "stopped and started", restart: server.Restart},
		{name: "killed and started", restart: func() { server.Kill(); server.Start() }},
		{name: "stopped and started again", restart: server.Restart},
	} {
		phase.restart()
		for range writesPerPhase {
			changes.writeNext(t)
		}
		for name, o := range observers {
			harness.Eventually(t, settleTime, name+" informer, "+phase.name, func() error { return o.compareStore(changes.live) })
		}
	}
	truth := map[string]string{}
	for _, ns := range namespaces {
		list, err := client.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list.Items {
			truth[ns+"/"+c.Name] = c.ResourceVersion
		}
	}
	if err := sameVersions(truth, changes.live); err != nil {
		t.Errorf("the list differs from the written objects: %v", err)
	}
	for name, o := range observers {
		for _, err := range o.violations() {
			t.Errorf("%s informer: %v", name, err)
		}
	}
}

// writer changes ConfigMaps one after another and records the expected state.
type writer struct {
	client     kubernetes.Interface
	namespaces []string
	live       map[string]string // namespace/name: acknowledged resource version
	order      []string          // keys of live, oldest first
	created    int
}

// writeNext creates, updates or deletes a ConfigMap in a fixed pattern.
func (w *writer) writeNext(t *testing.T) {
	t.Helper()
	w.created++
	switch w.created % 5 {
	case 0:
		w.delete(t)
	case 1, 2:
		w.create(t)
	default:
		w.update(t)
	}
}

// create creates a ConfigMap.
func (w *writer) create(t *testing.T) {
	t.Helper()
	w.created++
	ns, name := w.namespaces[w.created%len(w.namespaces)], fmt.Sprintf("o-%d", w.created)
	c, err := w.client.CoreV1().ConfigMaps(ns).Create(t.Context(), configMap(name, "0"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.live[ns+"/"+name] = c.ResourceVersion
	w.order = append(w.order, ns+"/"+name)
}

// update updates one of the ConfigMaps.
func (w *writer) update(t *testing.T) {
	t.Helper()
	key := w.order[w.created%len(w.order)]
	ns, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c := configMap(name, strconv.Itoa(w.created))
	c.ResourceVersion = w.live[key]
	if c, err = w.client.CoreV1().ConfigMaps(ns).Update(t.Context(), c, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.live[key] = c.ResourceVersion
}

// delete deletes the oldest ConfigMap.
func (w *writer) delete(t *testing.T) {
	t.Helper()
	key := w.order[0]
	ns, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.client.CoreV1().ConfigMaps(ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.order = w.order[1:]
	delete(w.live, key)
}

// observer is an informer with all its notifications.
type observer struct {
	store cache.Store

	mu      sync.Mutex
	history map[string][]notice // by key
}

// notice is one notification of an informer.
type notice struct {
	what    cache.DeltaType
	version int64
}

// startObserver starts an informer of ConfigMaps and waits until it has synced.
func startObserver(t *testing.T, c kubernetes.Interface) *observer {
	t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithTweakListOptions(func(started *metav1.ListOptions) {
		started.FieldSelector = "metadata.name!=kube-root-ca.crt"
	}))
	informer := factory.Core().V1().ConfigMaps().Informer()
	started := &observer{store: informer.GetStore(), history: map[string][]notice{}}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { started.recordDelta(t, cache.Added, obj) },
		UpdateFunc: func(_, obj any) { started.recordDelta(t, cache.Updated, obj) },
		DeleteFunc: func(obj any) { started.recordDelta(t, cache.Deleted, obj) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the informer did not sync")
	}
	return started
}

// recordDelta records a notification.
func (o *observer) recordDelta(t *testing.T, what cache.DeltaType, obj any) {
	if lost, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = lost.Obj
	}
	configMap, ok := obj.(*corev1.ConfigMap)
	if !ok {
		t.Errorf("got a notification with a %T, want a ConfigMap", obj)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	key := configMap.Namespace + "/" + configMap.Name
	o.history[key] = append(o.history[key], notice{what, parseRevision(t, configMap.ResourceVersion)})
}

// compareStore returns an error unless the informer's store has the expected objects.
func (o *observer) compareStore(live map[string]string) error {
	got := map[string]string{}
	for _, obj := range o.store.List() {
		if c, ok := obj.(*corev1.ConfigMap); ok && c.Namespace != metav1.NamespaceSystem {
			got[c.Namespace+"/"+c.Name] = c.ResourceVersion
		}
	}
	return sameVersions(live, got)
}

// sameVersions returns an error for a difference between resource versions by object.
func sameVersions(want, got map[string]string) error {
	for key, version := range want {
		if got[key] != version {
			return fmt.Errorf("%s: got %q, want %s", key, got[key], version)
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			return fmt.Errorf("%s: want no object", key)
		}
	}
	return nil
}

// violations returns violations of an informer's guarantees for each object: notifications begin
// with one addition, versions increase, and none follows a deletion (the test uses each name once).
func (o *observer) violations() (errs []error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, notices := range o.history {
		for i, notice := range notices {
			if (i == 0) != (notice.what == cache.Added) {
				errs = append(errs, fmt.Errorf("%s: notification %d of %d is %s", key, i+1, len(notices), notice.what))
			}
			if i == 0 {
				continue
			}
			before := notices[i-1]
			// A deletion after a lost watch has the last known version, and a repeated list may
			// deliver an unchanged object.
			if notice.version < before.version || before.what == cache.Deleted {
				errs = append(errs, fmt.Errorf("%s: %s %d after %s %d", key, notice.what, notice.version, before.what, before.version))
			}
		}
	}
	return errs
}

// TestWritesSurviveKill kills the server several times while many clients write. Every acknowledged
// write must persist.
func TestWritesSurviveKill(t *testing.T) {
	t.Parallel()
	const rounds, writers, enough = 3, 6, 200
	server := harness.StartServer(t)
	createNamespace(t, server.Client(), "load")
	ledger := &ledger{expected: map[string]entry{}}
	for round := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		reached := make(chan struct{})
		target := ledger.acknowledgedCount() + enough
		var once sync.Once
		var group sync.WaitGroup
		for i := range writers {
			client := server.Client() // separate connection
			group.Go(func() {
				w := loader{client: client, ledger: ledger, prefix: fmt.Sprintf("r%d-w%d", round, i)}
				for n := 0; ctx.Err() == nil; n++ {
					w.sendRequests(ctx, n)
					if ledger.acknowledgedCount() >= target {
						once.Do(func() { close(reached) })
					}
				}
			})
		}
		select {
		case <-reached:
		case <-time.After(settleTime):
			t.Errorf("got %d acknowledged writes in %s, want %d", ledger.acknowledgedCount(), settleTime, target)
		}
		server.Kill()
		cancel()
		group.Wait()
		server.Start()
		ledger.checkObjects(t, server.Client())
	}
	t.Logf("%d acknowledged writes of %d objects found after %d kills", ledger.acknowledgedCount(), len(ledger.expected), rounds)
}

// entry is the last acknowledged state of an object, and whether a later write without a response
// may have happened.
type entry struct {
	version   int64
	value     string
	deleted   bool
	uncertain bool
}

// ledger holds the expected state of written objects.
type ledger struct {
	mu       sync.Mutex
	expected map[string]entry
	acks     int
}

// acknowledgedCount returns the number of acknowledged writes.
func (l *ledger) acknowledgedCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acks
}

// recordEntry records an acknowledged write.
func (l *ledger) recordEntry(name string, e entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expected[name] = e
	if !e.uncertain {
		l.acks++
	}
}

// markDoubtful records that a write of an object got no response.
func (l *ledger) markDoubtful(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.expected[name]
	e.uncertain = true
	l.expected[name] = e
}

// checkObjects compares the stored objects with the ledger.
func (l *ledger) checkObjects(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	list, err := c.CoreV1().ConfigMaps("load").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]corev1.ConfigMap{}
	for _, configMap := range list.Items {
		got[configMap.Name] = configMap
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, want := range l.expected {
		configMap, there := got[name]
		switch {
		case want.uncertain && want.version == 0:
			// The creation was not acknowledged: both states are correct.
		case want.deleted && there:
			t.Errorf("%s exists, want it deleted", name)
		case want.deleted:
		case !there && !want.uncertain:
			t.Errorf("%s was acknowledged with version %d but is lost", name, want.version)
		case !there:
		default:
			version := parseRevision(t, configMap.ResourceVersion)
			if version < want.version || !want.uncertain && (version != want.version || configMap.Data["value"] != want.value) {
				t.Errorf("%s: got %d with %q, want version %d with %q", name, version, configMap.Data["value"], want.version, want.value)
			}
		}
	}
}

// loader creates an object, updates it, and deletes every third one.
type loader struct {
	client kubernetes.Interface
	ledger *ledger
	prefix string
}

// sendRequests creates and updates the n-th object, and deletes it if n is divisible by 3.
func (w loader) sendRequests(ctx context.Context, n int) {
	maps, name := w.client.CoreV1().ConfigMaps("load"), fmt.Sprintf("%s-%d", w.prefix, n)
	c, err := maps.Create(ctx, configMap(name, "created"), metav1.CreateOptions{})
	if !w.recordResponse(name, c, err) {
		return
	}
	c.Data["value"] = "updated"
	c, err = maps.Update(ctx, c, metav1.UpdateOptions{})
	if !w.recordResponse(name, c, err) || n%3 != 0 {
		return
	}
	if err := maps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		w.ledger.markDoubtful(name)
		return
	}
	w.ledger.recordEntry(name, entry{version: 1, deleted: true})
}

// recordResponse records the response to a write in the ledger and reports whether it was
// acknowledged.
func (w loader) recordResponse(name string, configMap *corev1.ConfigMap, err error) bool {
	if err != nil {
		// Only a Status response proves that nothing happened.
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError {
			w.ledger.markDoubtful(name)
		}
		return false
	}
	version, err := strconv.ParseInt(configMap.ResourceVersion, 10, 64)
	if err != nil {
		return false
	}
	w.ledger.recordEntry(name, entry{version: version, value: configMap.Data["value"]})
	return true
}
