package admission_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
)

var configMaps = &registry.Kind{Names: registry.Names{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}}

func configMap(change func(*corev1.ConfigMap)) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", ResourceVersion: "1"}, Data: map[string]string{"a": "b"}}
	change(c)
	return c
}

func TestRequestMatchesResource(t *testing.T) {
	r := &admission.Request{Resource: configMaps}
	for _, c := range []struct {
		group, resource string
		want            bool
	}{
		{group: "", resource: "configmaps", want: true},
		{group: "x", resource: "configmaps", want: false},
		{group: "", resource: "pods", want: false},
	} {
		if got := r.IsResource(c.group, c.resource); got != c.want {
			t.Errorf("IsResource(%q, %q) of an object: got %t, want %t", c.group, c.resource, got, c.want)
		}
		if got := r.IsObject(c.group, c.resource); got != c.want {
			t.Errorf("IsObject(%q, %q) of an object: got %t, want %t", c.group, c.resource, got, c.want)
		}
	}
	r.Subresource = "status"
	if !r.IsResource("", "configmaps") {
		t.Error(`IsResource("", "configmaps") of a subresource: got false, want true`)
	}
	if r.IsObject("", "configmaps") {
		t.Error(`IsObject("", "configmaps") of a subresource: got true, want false`)
	}
}

// TestObjectNameInErrors covers the name of the request, of its object, and generated names.
func TestObjectNameInErrors(t *testing.T) {
	for want, r := range map[string]admission.Request{
		"r":       {Name: "r", Object: configMap(func(*corev1.ConfigMap) {})},
		"c":       {Object: configMap(func(c *corev1.ConfigMap) { c.GenerateName = "g-" })},
		"g-":      {Object: configMap(func(c *corev1.ConfigMap) { c.Name, c.GenerateName = "", "g-" })},
		"Unknown": {},
	} {
		if got := r.ObjectName(); got != want {
			t.Errorf("ObjectName of a request with name %q and object %v: got %q, want %q", r.Name, r.Object, got, want)
		}
	}
	for name, o := range map[string]runtime.Object{"without a name": &corev1.ConfigMap{}, "without metadata": &metav1.Status{}} {
		if got := (&admission.Request{Object: o}).ObjectName(); got != "Unknown" {
			t.Errorf("%s: got %q, want Unknown", name, got)
		}
	}
	r := &admission.Request{Resource: configMaps, Name: "r"}
	err := r.Forbiddenf("no %d", 1)
	if !apierrors.IsForbidden(err) || err.Error() != `configmaps "r" is forbidden: no 1` || r.Forbidden(err) != err {
		t.Errorf("got %v; want an error of type Forbidden, `configmaps \"r\" is forbidden: no 1`, %v", err, err)
	}
}

// TestHousekeepingUpdates checks that only owner references, finalizers and managed fields may
// change.
func TestHousekeepingUpdates(t *testing.T) {
	was := configMap(func(*corev1.ConfigMap) {})
	for name, c := range map[string]struct {
		now, was runtime.Object
		want     bool
	}{
		"nothing":    {now: configMap(func(*corev1.ConfigMap) {}), was: was, want: true},
		"owners":     {now: configMap(func(c *corev1.ConfigMap) { c.OwnerReferences = []metav1.OwnerReference{{Name: "o"}} }), was: was, want: true},
		"finalizers": {now: configMap(func(c *corev1.ConfigMap) { c.Finalizers = []string{"f/f"} }), was: was, want: true},
		"fields": {
			now: configMap(func(c *corev1.ConfigMap) { c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}} }),
			was: was, want: true,
		},
		"data":        {now: configMap(func(c *corev1.ConfigMap) { c.Data["a"] = "c" }), was: was, want: false},
		"labels":      {now: configMap(func(c *corev1.ConfigMap) { c.Labels = map[string]string{"a": "b"} }), was: was, want: false},
		"new":         {now: configMap(func(*corev1.ConfigMap) {}), was: nil, want: false},
		"gone":        {now: nil, was: was, want: false},
		"no metadata": {now: &metav1.Status{}, was: &metav1.Status{}, want: false},
	} {
		r := &admission.Request{Object: c.now, OldObject: c.was}
		if got := r.IsMetadataOnlyUpdate(); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
		if o, ok := c.now.(*corev1.ConfigMap); ok && name == "owners" && len(o.OwnerReferences) != 1 {
			t.Errorf("got object %+v, want it unchanged, with one owner", o)
		}
	}
}

// TestCalleeIsCalledAgainIfOthersChangedObject checks that callees that want it are called again if
// the object changed, by any plugin.
func TestCalleeIsCalledAgainIfOthersChangedObject(t *testing.T) {
	type key struct{}
	// want holds the callees that want reinvocation.
	for name, c := range map[string]struct {
		want    []string
		changed bool // the plugin itself changes the object
		other   bool // another plugin changes the object
		none    bool // the request has no object
		due     string
	}{
		"no change":                    {want: []string{"a", "b"}},
		"own change":                   {want: []string{"a", "b"}, changed: true, due: "a b"},
		"change of another plugin":     {want: []string{"b"}, other: true, due: "b"},
		"no callee wants reinvocation": {changed: true, other: true},
		"no object":                    {want: []string{"a"}, none: true},
		"no object, own change":        {want: []string{"a"}, none: true, changed: true, due: "a"},
	} {
		r := &admission.Request{Operation: admission.Create, Resource: configMaps, Object: configMap(func(*corev1.ConfigMap) {})}
		if c.none {
			r.Object = nil
		}
		var due []string
		plugin := func(r *admission.Request) {
			calls := r.Reinvocation(key{})
			for _, callee := range []string{"a", "b"} {
				if !calls.ShouldCall(callee) {
					continue
				}
				if r.Reinvoked() {
					due = append(due, callee)
				}
				for _, w := range c.want {
					if w == callee {
						calls.WantsReinvocation(callee)
					}
				}
			}
			if c.changed && !r.Reinvoked() {
				calls.Changed()
			}
			calls.End()
		}
		chain := admission.NewChain(
			nil,
			admission.Plugin{Name: "it", Plugin: mutator(plugin)},
			admission.Plugin{Name: "other", Plugin: mutator(func(r *admission.Request) {
				if c.other {
					r.Object.(*corev1.ConfigMap).Data["a"] = "other"
				}
				r.RequestReinvocation()
			})},
		)
		// A new run of the chain keeps no state of the previous one.
		for range 2 {
			due = nil
			if err := chain.Mutate(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(due, " "); got != c.due {
				t.Errorf("%s: got second calls of %q, want %q", name, got, c.due)
			}
			if o, ok := r.Object.(*corev1.ConfigMap); ok {
				o.Data["a"] = "b"
			}
		}
	}
}

// TestReinvocationStateIsPerRun checks that a new run of the chain keeps no state, and that a
// plugin without a first call makes no second one.
func TestReinvocationStateIsPerRun(t *testing.T) {
	type key struct{}
	r := &admission.Request{Operation: admission.Create, Resource: configMaps, Object: configMap(func(*corev1.ConfigMap) {})}
	for _, c := range []struct{ changes, late, due bool }{
		{changes: true, due: true},
		{},
		{late: true},
		{changes: true, due: true},
	} {
		due := false
		chain := admission.NewChain(nil, admission.Plugin{Name: "it", Plugin: mutator(func(r *admission.Request) {
			r.RequestReinvocation()
			if c.late && !r.Reinvoked() {
				r.SetState(key{}, nil)
				return
			}
			calls := r.Reinvocation(key{})
			if calls.ShouldCall("a") {
				due = r.Reinvoked()
				calls.WantsReinvocation("a")
			}
			if c.changes && !r.Reinvoked() {
				calls.Changed()
			}
			calls.End()
		})})
		if err := chain.Mutate(t.Context(), r); err != nil || due != c.due {
			t.Errorf("%+v: got %v, second call %t; want no error, %v", c, err, due, c.due)
		}
	}
}

// mutator is a mutating plugin.
type mutator func(*admission.Request)

func (m mutator) Admit(_ context.Context, r *admission.Request) error { m(r); return nil }

// fixedLevel is an audit policy with one level, and lineSink records the lines of events.
type fixedLevel struct{ level audit.Level }

func (a fixedLevel) Decide(*requestinfo.Info, *request.User) audit.Decision {
	return audit.Decision{Level: a.level}
}

type lineSink struct{ lines []string }

func (n *lineSink) Process(_ context.Context, e *audit.Event) error {
	n.lines = append(n.lines, string(e.AppendLine(nil)))
	return nil
}

// TestAnnotationsAreAudited checks that details are recorded only together with bodies, also for
// rejected requests.
func TestAnnotationsAreAudited(t *testing.T) {
	for level, detailed := range map[audit.Level]bool{audit.Metadata: false, audit.Request: true, audit.RequestResponse: true} {
		sink := &lineSink{}
		trail := audit.New(audit.Config{
			Policy: fixedLevel{level}, Sinks: []audit.Sink{sink},
			Metrics: audit.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
			MaxObject: 1 << 10, MaxObjects: 1 << 20,
		})
		rec := trail.Open(
			&requestinfo.Info{Verb: "create"},
			&request.User{},
			func() audit.ReceivedRequest { return audit.ReceivedRequest{ID: "x"} },
		)
		chain := admission.NewChain(nil, admission.Plugin{Name: "it", Plugin: rejecter{}})
		r := &admission.Request{Operation: admission.Create, Resource: configMaps}
		ctx, s := request.Derive(t.Context())
		s.AuditEvent = rec
		if err := chain.Validate(ctx, r); err == nil {
			t.Error("the request was not rejected")
		}
		rec.End(t.Context(), nil)
		got := strings.Join(sink.lines, "\n")
		if !strings.Contains(got, `"a/word":"1"`) {
			t.Errorf("%v: got %s, want it to contain the annotation a/word", level, got)
		}
		if has := strings.Contains(got, `"a/detail":"1"`); has != detailed {
			t.Errorf("%v: got annotation a/detail: %t, want %t", level, has, detailed)
		}
		if strings.Contains(got, `"2"`) {
			t.Errorf("%v: got %s, want the first values kept, none of 2", level, got)
		}
		if d := r.Details(); len(d) != 1 || d["a/detail"] != "1" {
			t.Errorf("details %v; want length 1, \"1\"", d)
		}
	}
}

type rejecter struct{}

func (rejecter) Validate(_ context.Context, r *admission.Request) error {
	for _, v := range []string{"1", "2"} { // the first value wins
		r.Annotate("a/word", v)
		r.Detail("a/detail", v)
	}
	return errors.New("no")
}

// externalCaller calls external services for one operation.
type externalCaller struct{ of admission.Operation }

func (o externalCaller) CallsExternal(_ context.Context, r *admission.Request) bool {
	return r.Operation == o.of
}

func TestChainReportsExternalCalls(t *testing.T) {
	chain := admission.NewChain(nil, admission.Plugin{Name: "a", Plugin: externalCaller{admission.Create}}, admission.Plugin{
		Name: "b", Plugin: externalCaller{admission.Update},
	})
	for op, want := range map[admission.Operation]bool{admission.Create: true, admission.Update: true, admission.Delete: false} {
		if got := chain.CallsExternal(t.Context(), &admission.Request{Operation: op}); got != want {
			t.Errorf("%s: got %t, want %t", op, got, want)
		}
	}
}

// TestMetricsOfPluginsAndPhases checks that durations are recorded by phase and result.
func TestMetricsOfPluginsAndPhases(t *testing.T) {
	var calls []string
	registered := prometheus.NewRegistry()
	agrees, rejects := &plugin{name: "a", calls: &calls}, &plugin{name: "b", calls: &calls, reject: "validate"}
	claims := &plugin{name: "c", calls: &calls, reject: "claim"}
	chain := admission.NewChain(admission.NewMetrics(registered), admission.Plugin{Name: "a", Plugin: agrees},
		admission.Plugin{Name: "b", Plugin: rejects}, admission.Plugin{Name: "c", Plugin: claims})
	r := &admission.Request{Operation: admission.Create}
	if err := errors.Join(chain.Mutate(t.Context(), r), chain.Validate(t.Context(), r)); err == nil {
		t.Error("Mutate and Validate: error = nil, want the rejection of plugin b")
	}
	if _, err := chain.Reserve(t.Context(), r); err == nil {
		t.Error("Reserve: error = nil, want the rejection of plugin c")
	}
	families, err := registered.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := ""
			for _, l := range m.GetLabel() {
				if l.GetName() != "operation" {
					labels += " " + l.GetValue()
				}
			}
			got[strings.TrimPrefix(f.GetName(), "apiserver_admission_")+labels] += m.GetHistogram().GetSampleCount()
		}
	}
	const one, step = "controller_admission_duration_seconds ", "step_admission_duration_seconds "
	want := map[string]uint64{
		one + "a false admit": 1, one + "b false admit": 1, one + "c false admit": 1, one + "a false validate": 2,
		one + "b true validate":  1,
		one + "b false validate": 1, one + "c true validate": 1, step + "false admit": 1, step + "true validate": 1,
		"step_admission_duration_seconds_summary false admit": 0, "step_admission_duration_seconds_summary true validate": 0,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got sample counts %v, want %v", got, want)
	}
}
