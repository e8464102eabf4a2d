package eventratelimit_test

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/eventratelimit"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

// head is the beginning of every valid configuration.
const head = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n"

// event is a request for an event, with the wanted result.
type event struct {
	after             time.Duration // since the request before
	group, kind       string        // of the request; default: Event of the core group
	namespace, object string        // namespace and kind of the object that the event concerns
	user              string
	isDryRun          bool
	op                admission.Operation // default: create
	want              string              // error after "Too many requests: "; "" if it is admitted
}

// TestEventsBeyondRateAreRejected checks the limits by namespace, source and object, user and server.
// The clock moves only between the requests of a row.
func TestEventsBeyondRateAreRejected(t *testing.T) {
	const (
		serverLimited = "limit reached on type Server for key "
		userALimited  = "limit reached on type User for key a"
	)
	for name, test := range map[string]struct {
		limits string
		events []event
	}{
		"namespace and source with object": {
			limits: "[{type: Namespace, qps: 1, burst: 2, cacheSize: 10}, {type: SourceAndObject, qps: 1, burst: 1}, " +
				"{type: User, qps: 100, burst: 100}, {type: Server, qps: 100, burst: 100}]",
			events: []event{
				{namespace: "off", object: "Pod"},
				{namespace: "off", object: "Pod", want: "limit reached on type SourceAndObject for key chPodoffp1"},
				{namespace: "off", object: "Node", want: "limit reached on type Namespace for key off"},
				{namespace: "off", object: "Node", isDryRun: true},
				{
					namespace: "off", object: "Pod", op: admission.Update,
					want: "[limit reached on type Namespace for key off, limit reached on type SourceAndObject for key chPodoffp1]",
				},
			},
		},
		"tokens are refilled": {
			limits: "[{type: Server, qps: 2, burst: 1}]",
			events: []event{
				{},
				{want: serverLimited},
				{after: 500 * time.Millisecond},
				{want: serverLimited},
				{after: time.Hour}, // the bucket holds at most the burst
				{want: serverLimited},
			},
		},
		"each user has its own limit": {
			limits: "[{type: User, qps: 1, burst: 1}]",
			events: []event{{user: "a"}, {user: "b"}, {user: "a", want: userALimited}},
		},
		"least recently used key is evicted": {
			limits: "[{type: User, qps: 1, burst: 1, cacheSize: 2}]",
			events: []event{
				{user: "a"},
				{user: "b"},
				{user: "a", want: userALimited},
				{user: "c"}, // evicts b
				{user: "a", want: userALimited},
				{user: "b"},
			},
		},
		"other kinds, groups and operations are not limited": {
			limits: "[{type: Server, qps: 1, burst: 1}]",
			events: []event{
				{},
				{kind: "Pod"},
				{group: "events.k8s.io"},
				{op: admission.Delete},
				{want: serverLimited},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			conf, err := eventratelimit.Load([]byte(head + "limits: " + test.limits))
			if err != nil {
				t.Fatal(err)
			}
			now := time.Unix(1000, 0)
			plugin, err := eventratelimit.New(conf, func() time.Time { return now })
			if err != nil {
				t.Fatal(err)
			}
			for i, sent := range test.events {
				now = now.Add(sent.after)
				if sent.kind == "" {
					sent.kind = "Event"
				}
				if sent.op == "" {
					sent.op = admission.Create
				}
				err := plugin.Validate(t.Context(), &admission.Request{
					Operation: sent.op, Resource: &registry.Kind{}, Kind: schema.GroupVersionKind{Group: sent.group, Version: "v1", Kind: sent.kind},
					Namespace: sent.namespace, User: &request.User{Name: sent.user}, DryRun: sent.isDryRun,
					Object: &corev1.Event{
						Source:         corev1.EventSource{Component: "c", Host: "h"},
						InvolvedObject: corev1.ObjectReference{Kind: sent.object, Namespace: sent.namespace, Name: "p", UID: "1"},
					},
				})
				want := ""
				if sent.want != "" {
					want = "Too many requests: " + sent.want
				}
				if err == nil && want != "" || err != nil && (err.Error() != want || !apierrors.IsTooManyRequests(err)) {
					t.Errorf("event %d: got error %v, want %q (empty: none)", i, err, want)
				}
			}
		})
	}
}

// TestLongKeysAreNotKept checks that the cache does not hold long keys. Events choose the keys, and
// the cache is limited only by their number.
func TestLongKeysAreNotKept(t *testing.T) {
	conf, err := eventratelimit.Load([]byte(head + "limits: [{type: SourceAndObject, qps: 1, burst: 1}]"))
	if err != nil {
		t.Fatal(err)
	}
	plugin, err := eventratelimit.New(conf, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	before := liveHeapBytes()
	for i := range 100 {
		name := strings.Repeat("x", 1<<20) + strconv.Itoa(i)
		if err := plugin.Validate(t.Context(), &admission.Request{
			Operation: admission.Create, Resource: &registry.Kind{}, Kind: schema.GroupVersionKind{Version: "v1", Kind: "Event"},
			Object: &corev1.Event{InvolvedObject: corev1.ObjectReference{Name: name}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if after := liveHeapBytes(); after > before+16<<20 {
		t.Errorf("100 keys of 1 MiB: got %d MiB of memory, want at most 16", (after-before)>>20)
	}
	runtime.KeepAlive(plugin)
}

// liveHeapBytes returns the size of the heap after a garbage collection.
func liveHeapBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestInvalidConfigurationIsRejected checks the error of each invalid configuration.
func TestInvalidConfigurationIsRejected(t *testing.T) {
	for name, test := range map[string]struct{ file, want string }{
		"no file":   {file: "", want: "limits: Invalid value: []eventratelimit.Limit(nil): must not be empty"},
		"no limits": {file: head, want: "limits: Invalid value: []eventratelimit.Limit(nil): must not be empty"},
		"bad limits": {file: head + "limits: [{type: Odd, qps: 0, burst: -1, cacheSize: -2}]",
			want: `[limits[0].type: Unsupported value: "Odd": supported values: "Server", "Namespace", "User", "SourceAndObject", limits[0].burst: Invalid value: -1: must be positive, limits[0].qps: Invalid value: 0: must be positive, limits[0].cacheSize: Invalid value: -2: must not be negative]`},
		"unknown field": {file: head + "limits: [{type: Server, qps: 1, burst: 1, bucket: 2}]",
			want: `strict decoding error: unknown field "limits[0].bucket"`},
		"other kind": {file: "apiVersion: v1\nkind: Pod\n",
			want: `no kind "Pod" is registered for version "v1" in scheme "admission configuration"`},
	} {
		var data []byte
		if test.file != "" {
			data = []byte(test.file)
		}
		if _, err := eventratelimit.Load(data); err == nil || err.Error() != test.want {
			t.Errorf("%s: got error %v, want %q", name, err, test.want)
		}
	}
}
