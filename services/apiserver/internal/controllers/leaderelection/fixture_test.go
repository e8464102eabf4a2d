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

// objectKey returns the key of an object of the call's resource and namespace.
func objectKey(c *internalclient.Call, name string) string {
	return c.Resource + "/" + c.Namespace + "/" + name
}

// Do implements internalclient.Doer.
func (f *fixture) Do(_ context.Context, call internalclient.Call, out any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	notFound := apierrors.NewNotFound(call.GroupResource(), call.Name)
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
		object := f.stored[objectKey(&call, call.Name)]
		if object == nil {
			return notFound
		}
		return copyJSON(object, out)
	case internalclient.List:
		list := map[string]any{}
		var items []any
		for key, object := range f.stored {
			if strings.HasPrefix(key, call.Resource+"/") {
				items = append(items, object)
			}
		}
		list["items"] = items
		return copyJSON(list, out)
	case internalclient.Delete:
		object := f.stored[objectKey(&call, call.Name)]
		if object == nil {
			return notFound
		}
		if version := call.Delete.Preconditions.ResourceVersion; *version != object.GetResourceVersion() {
			return apierrors.NewConflict(call.GroupResource(), call.Name, nil)
		}
		delete(f.stored, objectKey(&call, call.Name))
		f.notify(object)
		return nil
	}
	sent := call.Body.(registry.Object).DeepCopyObject().(registry.Object)
	current := f.stored[objectKey(&call, sent.GetName())]
	switch {
	case call.Verb == internalclient.Create && current != nil:
		return apierrors.NewAlreadyExists(call.GroupResource(), sent.GetName())
	case call.Verb == internalclient.Update && current == nil:
		return notFound
	case call.Verb == internalclient.Update && current.GetResourceVersion() != sent.GetResourceVersion():
		return apierrors.NewConflict(call.GroupResource(), call.Name, nil)
	}
	f.putObject(objectKey(&call, sent.GetName()), sent)
	return nil
}

// putObject stores an object under a key and notifies the controllers. The caller holds mu.
func (f *fixture) putObject(at string, object registry.Object) {
	f.revision++
	object.SetResourceVersion(strconv.Itoa(f.revision))
	f.stored[at] = object
	f.writes[at]++
	f.notify(object)
}

// notify reports a change to the controllers.
func (f *fixture) notify(object registry.Object) {
	for _, controller := range f.controllers {
		if _, isLease := object.(*coordinationv1.Lease); isLease {
			controller.LeaseChanged(object.GetNamespace(), object.GetName())
		} else {
			controller.CandidateChanged(object.GetNamespace(), object.GetName())
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
			for key, object := range f.stored {
				switch object := object.(type) {
				case *coordinationv1beta1.LeaseCandidate:
					if alive[object.Name] && object.Spec.PingTime != nil && object.Spec.PingTime.After(object.Spec.RenewTime.Time) {
						object = object.DeepCopy()
						object.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(ahead)}
						f.putObject(key, object)
					}
				case *coordinationv1.Lease:
					if holder := object.Spec.HolderIdentity; holder != nil && alive[*holder] && object.Spec.PreferredHolder == nil {
						object = object.DeepCopy()
						object.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
						f.putObject(key, object)
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
	text := func(value *string) string {
		if value == nil {
			return "-"
		}
		return *value
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
