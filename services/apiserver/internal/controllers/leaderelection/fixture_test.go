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
	stored      map[string]registry.Object // by "resource/namespace/name"
	writes      map[string]int             // number of writes of each object
	down        bool                       // every call fails
	controllers []*leaderelection.Controller
	calls       map[internalclient.Verb]int
	// maxAtOnce is the largest number of calls at one time of the bubble, by verb. callsNow is their
	// number at the time lastCall.
	maxAtOnce, callsNow map[internalclient.Verb]int
	lastCall            time.Time
	logged              bytes.Buffer
}

func newFixture(t *testing.T) *fixture {
	return &fixture{
		t:         t,
		stored:    map[string]registry.Object{},
		writes:    map[string]int{},
		calls:     map[internalclient.Verb]int{},
		maxAtOnce: map[internalclient.Verb]int{},
	}
}

// key returns the key of an object of the call's resource and namespace.
func key(c *internalclient.Call, name string) string {
	return c.Resource + "/" + c.Namespace + "/" + name
}

// Do implements internalclient.Doer.
func (f *fixture) Do(_ context.Context, call internalclient.Call, out any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	gone := apierrors.NewNotFound(call.GroupResource(), call.Name)
	if f.down {
		return apierrors.NewServiceUnavailable("down")
	}
	f.calls[call.Verb]++
	if now := time.Now(); now != f.lastCall {
		f.lastCall, f.callsNow = now, map[internalclient.Verb]int{}
	}
	f.callsNow[call.Verb]++
	f.maxAtOnce[call.Verb] = max(f.maxAtOnce[call.Verb], f.callsNow[call.Verb])
	switch call.Verb {
	case internalclient.Get:
		object := f.stored[key(&call, call.Name)]
		if object == nil {
			return gone
		}
		return copyJSON(object, out)
	case internalclient.List:
		list := map[string]any{}
		var items []any
		for k, object := range f.stored {
			if strings.HasPrefix(k, call.Resource+"/") {
				items = append(items, object)
			}
		}
		list["items"] = items
		return copyJSON(list, out)
	case internalclient.Delete:
		object := f.stored[key(&call, call.Name)]
		if object == nil {
			return gone
		}
		if v := call.Delete.Preconditions.ResourceVersion; *v != object.GetResourceVersion() {
			return apierrors.NewConflict(call.GroupResource(), call.Name, nil)
		}
		delete(f.stored, key(&call, call.Name))
		f.notify(object)
		return nil
	}
	sent := call.Body.(registry.Object).DeepCopyObject().(registry.Object)
	current := f.stored[key(&call, sent.GetName())]
	switch {
	case call.Verb == internalclient.Create && current != nil:
		return apierrors.NewAlreadyExists(call.GroupResource(), sent.GetName())
	case call.Verb == internalclient.Update && current == nil:
		return gone
	case call.Verb == internalclient.Update && current.GetResourceVersion() != sent.GetResourceVersion():
		return apierrors.NewConflict(call.GroupResource(), call.Name, nil)
	}
	f.putObject(key(&call, sent.GetName()), sent)
	return nil
}

// putObject stores an object under a key and notifies the controllers. The caller holds mu.
func (f *fixture) putObject(at string, o registry.Object) {
	f.revision++
	o.SetResourceVersion(strconv.Itoa(f.revision))
	f.stored[at] = o
	f.writes[at]++
	f.notify(o)
}

// notify reports a change to the controllers.
func (f *fixture) notify(o registry.Object) {
	for _, controller := range f.controllers {
		if _, isLease := o.(*coordinationv1.Lease); isLease {
			controller.LeaseChanged(o.GetNamespace(), o.GetName())
		} else {
			controller.CandidateChanged(o.GetNamespace(), o.GetName())
		}
	}
}

// copyJSON copies an object to out by encoding and decoding it.
func copyJSON(o, out any) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, out)
}

// controller runs the controller of one replica. stop stops it and waits for its end.
func (f *fixture) controller(identity string) (stop func()) {
	created := leaderelection.New(leaderelection.Config{
		API:      &internalclient.Client{Doer: f},
		Identity: identity,
		Logger:   slog.New(slog.NewJSONHandler(&f.logged, nil)),
		Now:      time.Now,
	})
	f.mu.Lock()
	f.controllers = append(f.controllers, created)
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = created.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	f.t.Cleanup(stop)
	return stop
}

// oldest is the strategy that elects the candidate with the oldest emulation version.
const oldest = string(coordinationv1.OldestEmulationVersion)

// addCandidate writes a candidate in namespace "ns", or renews it. changes adjust its spec.
func (f *fixture) addCandidate(
	name, lease, emulation, binary, strategy string,
	changes ...func(*coordinationv1beta1.LeaseCandidateSpec),
) {
	f.mu.Lock()
	defer f.mu.Unlock()
	leaseCandidate := &coordinationv1beta1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: metav1.Now()},
	}
	if lease == "leader-election-controller" {
		leaseCandidate.Namespace = "kube-system"
	}
	leaseCandidate.Spec = coordinationv1beta1.LeaseCandidateSpec{
		LeaseName:        lease,
		EmulationVersion: emulation,
		BinaryVersion:    binary,
		Strategy:         coordinationv1.CoordinatedLeaseStrategy(strategy),
		RenewTime:        &metav1.MicroTime{Time: time.Now()},
	}
	for _, change := range changes {
		change(&leaseCandidate.Spec)
	}
	f.putObject("leasecandidates/"+leaseCandidate.Namespace+"/"+name, leaseCandidate)
}

// keepAlive responds to pings for candidates and renews leases of holders, until kill is called with
// their name.
func (f *fixture) keepAlive(names ...string) (kill func(string)) {
	return f.keepAliveAhead(0, names...)
}

// keepAliveAhead is keepAlive for candidates whose clock is ahead.
func (f *fixture) keepAliveAhead(ahead time.Duration, names ...string) (kill func(string)) {
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
			f.mu.Lock()
			for key, o := range f.stored {
				switch o := o.(type) {
				case *coordinationv1beta1.LeaseCandidate:
					if alive[o.Name] && o.Spec.PingTime != nil && o.Spec.PingTime.After(o.Spec.RenewTime.Time) {
						o = o.DeepCopy()
						o.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(ahead)}
						f.putObject(key, o)
					}
				case *coordinationv1.Lease:
					if h := o.Spec.HolderIdentity; h != nil && alive[*h] && o.Spec.PreferredHolder == nil {
						o = o.DeepCopy()
						o.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
						f.putObject(key, o)
					}
				}
			}
			f.mu.Unlock()
		}
	})
	f.t.Cleanup(func() { close(stop); done.Wait() })
	return func(name string) { f.mu.Lock(); delete(alive, name); f.mu.Unlock() }
}

// lease returns "holder preferredHolder strategy" of a lease, with "-" for missing values. It returns
// "none" if the lease does not exist.
func (f *fixture) lease(at string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	read, _ := f.stored["leases/"+at].(*coordinationv1.Lease)
	if read == nil {
		return "none"
	}
	text := func(p *string) string {
		if p == nil {
			return "-"
		}
		return *p
	}
	strategy := "-"
	if read.Spec.Strategy != nil {
		strategy = string(*read.Spec.Strategy)
	}
	return fmt.Sprintf("%s %s %s", text(read.Spec.HolderIdentity), text(read.Spec.PreferredHolder), strategy)
}

// written returns the number of writes of an object.
func (f *fixture) written(at string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes[at]
}

// advance advances the time of the bubble.
func advance(d time.Duration) { time.Sleep(d); synctest.Wait() }
