package leaderelection_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/controllers/leaderelection"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// fixture is an in-memory API server for candidates and leases. It runs in a synctest bubble, so
// that hours can pass.
type fixture struct {
	t           *testing.T
	mu          sync.Mutex
	revision    int
	stored      map[string]registry.Object
	writes      map[string]int
	down        bool
	controllers []*leaderelection.Controller
	calls       map[internalclient.Verb]int
	// most is the largest number of calls without a pause, by verb.
	most, since map[internalclient.Verb]int
	last        time.Time
	logged      bytes.Buffer
}

func newFixture(t *testing.T) *fixture {
	return &fixture{t: t, stored: map[string]registry.Object{}, writes: map[string]int{}, calls: map[internalclient.Verb]int{}, most: map[internalclient.Verb]int{}}
}

func key(c *internalclient.Call, name string) string {
	return c.Resource + "/" + c.Namespace + "/" + name
}

// Do implements internalclient.Door.
func (w *fixture) Do(_ context.Context, c internalclient.Call, out any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	gone := apierrors.NewNotFound(c.GroupResource(), c.Name)
	if w.down {
		return apierrors.NewServiceUnavailable("down")
	}
	w.calls[c.Verb]++
	if now := time.Now(); now != w.last {
		w.last, w.since = now, map[internalclient.Verb]int{}
	}
	w.since[c.Verb]++
	w.most[c.Verb] = max(w.most[c.Verb], w.since[c.Verb])
	switch c.Verb {
	case internalclient.Get:
		o := w.stored[key(&c, c.Name)]
		if o == nil {
			return gone
		}
		return show(o, out)
	case internalclient.List:
		list := map[string]any{}
		var items []any
		for k, o := range w.stored {
			if strings.HasPrefix(k, c.Resource+"/") {
				items = append(items, o)
			}
		}
		list["items"] = items
		return show(list, out)
	case internalclient.Delete:
		o := w.stored[key(&c, c.Name)]
		if o == nil {
			return gone
		}
		if v := c.Delete.Preconditions.ResourceVersion; *v != o.GetResourceVersion() {
			return apierrors.NewConflict(c.GroupResource(), c.Name, nil)
		}
		delete(w.stored, key(&c, c.Name))
		w.notify(o)
		return nil
	}
	sent := c.Sent.(registry.Object).DeepCopyObject().(registry.Object)
	was := w.stored[key(&c, sent.GetName())]
	switch {
	case c.Verb == internalclient.Create && was != nil:
		return apierrors.NewAlreadyExists(c.GroupResource(), sent.GetName())
	case c.Verb == internalclient.Update && was == nil:
		return gone
	case c.Verb == internalclient.Update && was.GetResourceVersion() != sent.GetResourceVersion():
		return apierrors.NewConflict(c.GroupResource(), c.Name, nil)
	}
	w.put(key(&c, sent.GetName()), sent)
	return nil
}

func (w *fixture) put(at string, o registry.Object) {
	w.revision++
	o.SetResourceVersion(strconv.Itoa(w.revision))
	w.stored[at] = o
	w.writes[at]++
	w.notify(o)
}

// notify reports a change to the controllers.
func (w *fixture) notify(o registry.Object) {
	for _, k := range w.controllers {
		if _, is := o.(*coordinationv1.Lease); is {
			k.LeaseChanged(o.GetNamespace(), o.GetName())
		} else {
			k.CandidateChanged(o.GetNamespace(), o.GetName())
		}
	}
}

func show(o, out any) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, out)
}

// controller runs the controller of one replica. stop stops it and waits for its end.
func (w *fixture) controller(identity string) (stop func()) {
	k := leaderelection.New(leaderelection.Config{API: &internalclient.Client{Doer: w}, Identity: identity, Logger: slog.New(slog.NewJSONHandler(&w.logged, nil)), Now: time.Now})
	w.mu.Lock()
	w.controllers = append(w.controllers, k)
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = k.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	w.t.Cleanup(stop)
	return stop
}

const oldest = string(coordinationv1.OldestEmulationVersion)

// addCandidate writes a candidate in namespace ns, or renews it.
func (w *fixture) addCandidate(name, lease, emulation, binary, strategy string, but ...func(*coordinationv1beta1.LeaseCandidateSpec)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &coordinationv1beta1.LeaseCandidate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: metav1.Now()}}
	if lease == "leader-election-controller" {
		c.Namespace = "kube-system"
	}
	c.Spec = coordinationv1beta1.LeaseCandidateSpec{
		LeaseName: lease, EmulationVersion: emulation, BinaryVersion: binary, Strategy: coordinationv1.CoordinatedLeaseStrategy(strategy), RenewTime: &metav1.MicroTime{Time: time.Now()},
	}
	for _, change := range but {
		change(&c.Spec)
	}
	w.put("leasecandidates/"+c.Namespace+"/"+name, c)
}

// live answers pings for candidates and renews leases of holders, until they are killed.
func (w *fixture) live(names ...string) (kill func(string)) { return w.liveBy(0, names...) }

// liveBy is live with a clock that is ahead.
func (w *fixture) liveBy(ahead time.Duration, names ...string) (kill func(string)) {
	alive := map[string]bool{}
	for _, n := range names {
		alive[n] = true
	}
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-stop:
				return
			}
			w.mu.Lock()
			for k, o := range w.stored {
				switch o := o.(type) {
				case *coordinationv1beta1.LeaseCandidate:
					if alive[o.Name] && o.Spec.PingTime != nil && o.Spec.PingTime.After(o.Spec.RenewTime.Time) {
						o = o.DeepCopy()
						o.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(ahead)}
						w.put(k, o)
					}
				case *coordinationv1.Lease:
					if h := o.Spec.HolderIdentity; h != nil && alive[*h] && o.Spec.PreferredHolder == nil {
						o = o.DeepCopy()
						o.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
						w.put(k, o)
					}
				}
			}
			w.mu.Unlock()
		}
	})
	w.t.Cleanup(func() { close(stop); done.Wait() })
	return func(name string) { w.mu.Lock(); delete(alive, name); w.mu.Unlock() }
}

func (w *fixture) lease(at string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, _ := w.stored["leases/"+at].(*coordinationv1.Lease)
	if l == nil {
		return "none"
	}
	text := func(p *string) string {
		if p == nil {
			return "-"
		}
		return *p
	}
	strategy := "-"
	if l.Spec.Strategy != nil {
		strategy = string(*l.Spec.Strategy)
	}
	return fmt.Sprintf("%s %s %s", text(l.Spec.HolderIdentity), text(l.Spec.PreferredHolder), strategy)
}

func (w *fixture) written(at string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes[at]
}

// after advances the time of the bubble.
func after(d time.Duration) { time.Sleep(d); synctest.Wait() }
