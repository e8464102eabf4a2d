package admission_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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

// configMap returns a changed config map.
func configMap(change func(*corev1.ConfigMap)) *corev1.ConfigMap {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", ResourceVersion: "1"}, Data: map[string]string{"a": "b"}}
	change(object)
	return object
}

// TestRequestMatchesResource checks that IsResource also matches subresources, and IsObject does not.
func TestRequestMatchesResource(t *testing.T) {
	req := &admission.Request{Resource: configMaps}
	for _, test := range []struct {
		group, resource string
		want            bool
	}{
		{group: "", resource: "configmaps", want: true},
		{group: "x", resource: "configmaps", want: false},
		{group: "", resource: "pods", want: false},
	} {
		if got := req.IsResource(test.group, test.resource); got != test.want {
			t.Errorf("IsResource(%q, %q) of an object: got %t, want %t", test.group, test.resource, got, test.want)
		}
		if got := req.IsObject(test.group, test.resource); got != test.want {
			t.Errorf("IsObject(%q, %q) of an object: got %t, want %t", test.group, test.resource, got, test.want)
		}
	}
	req.Subresource = "status"
	if !req.IsResource("", "configmaps") {
		t.Error(`IsResource("", "configmaps") of a subresource: got false, want true`)
	}
	if req.IsObject("", "configmaps") {
		t.Error(`IsObject("", "configmaps") of a subresource: got true, want false`)
	}
}

// TestObjectNameFallsBackToGenerateName checks that ObjectName returns the name of the request,
// else the name of its object, else the prefix of the generated name.
func TestObjectNameFallsBackToGenerateName(t *testing.T) {
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
			t.Errorf("object %s: got %q, want Unknown", name, got)
		}
	}
}

// TestForbiddenWrapsErrorOnce checks that Forbidden adds the resource and the name to an error, but
// returns a Forbidden error unchanged.
func TestForbiddenWrapsErrorOnce(t *testing.T) {
	req := &admission.Request{Resource: configMaps, Name: "r"}
	err := req.Forbiddenf("no %d", 1)
	if want := `configmaps "r" is forbidden: no 1`; !apierrors.IsForbidden(err) || err.Error() != want {
		t.Errorf("got error %v, want the Forbidden error %s", err, want)
	}
	if again := req.Forbidden(err); again != err {
		t.Errorf("Forbidden of a Forbidden error: got %v, want the same error", again)
	}
}

// TestIsMetadataOnlyUpdateIgnoresOwnersFinalizersAndManagedFields checks that an update that changes
// anything else is not a metadata-only update.
func TestIsMetadataOnlyUpdateIgnoresOwnersFinalizersAndManagedFields(t *testing.T) {
	old := configMap(func(*corev1.ConfigMap) {})
	for name, test := range map[string]struct {
		obj, old runtime.Object
		want     bool
	}{
		"no change":  {obj: configMap(func(*corev1.ConfigMap) {}), old: old, want: true},
		"owners":     {obj: configMap(func(c *corev1.ConfigMap) { c.OwnerReferences = []metav1.OwnerReference{{Name: "o"}} }), old: old, want: true},
		"finalizers": {obj: configMap(func(c *corev1.ConfigMap) { c.Finalizers = []string{"f/f"} }), old: old, want: true},
		"managed fields": {
			obj: configMap(func(c *corev1.ConfigMap) { c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}} }),
			old: old, want: true,
		},
		"data":                     {obj: configMap(func(c *corev1.ConfigMap) { c.Data["a"] = "c" }), old: old, want: false},
		"labels":                   {obj: configMap(func(c *corev1.ConfigMap) { c.Labels = map[string]string{"a": "b"} }), old: old, want: false},
		"create":                   {obj: configMap(func(*corev1.ConfigMap) {}), old: nil, want: false},
		"delete":                   {obj: nil, old: old, want: false},
		"objects without metadata": {obj: &metav1.Status{}, old: &metav1.Status{}, want: false},
	} {
		r := &admission.Request{Object: test.obj, OldObject: test.old}
		if got := r.IsMetadataOnlyUpdate(); got != test.want {
			t.Errorf("%s: IsMetadataOnlyUpdate = %t, want %t", name, got, test.want)
		}
		if o, ok := test.obj.(*corev1.ConfigMap); ok && name == "owners" && len(o.OwnerReferences) != 1 {
			t.Errorf("got object %+v, want it unchanged, with one owner", o)
		}
	}
}

// TestCalleeIsCalledAgainIfObjectChanged checks that a callee (a webhook or policy of a plugin) that
// wants reinvocation is called again if any plugin changed the object.
func TestCalleeIsCalledAgainIfObjectChanged(t *testing.T) {
	type key struct{}
	for name, test := range map[string]struct {
		reinvoke        []string // callees that want reinvocation
		changesItself   bool     // the plugin changes the object
		isChangedLater  bool     // the next plugin changes the object
		hasNoObject     bool
		wantSecondCalls string // callees
	}{
		"no change":                    {reinvoke: []string{"a", "b"}},
		"own change":                   {reinvoke: []string{"a", "b"}, changesItself: true, wantSecondCalls: "a b"},
		"change of another plugin":     {reinvoke: []string{"b"}, isChangedLater: true, wantSecondCalls: "b"},
		"no callee wants reinvocation": {changesItself: true, isChangedLater: true},
		"no object":                    {reinvoke: []string{"a"}, hasNoObject: true},
		"no object, own change":        {reinvoke: []string{"a"}, hasNoObject: true, changesItself: true, wantSecondCalls: "a"},
	} {
		req := &admission.Request{Operation: admission.Create, Resource: configMaps, Object: configMap(func(*corev1.ConfigMap) {})}
		if test.hasNoObject {
			req.Object = nil
		}
		var secondCalls []string
		plugin := func(req *admission.Request) {
			calls := req.Reinvocation(key{})
			for _, callee := range []string{"a", "b"} {
				if !calls.ShouldCall(callee) {
					continue
				}
				if req.Reinvoked() {
					secondCalls = append(secondCalls, callee)
				}
				if slices.Contains(test.reinvoke, callee) {
					calls.WantsReinvocation(callee)
				}
			}
			if test.changesItself && !req.Reinvoked() {
				calls.Changed()
			}
			calls.End()
		}
		chain := admission.NewChain(
			nil,
			admission.Plugin{Name: "it", Plugin: mutator(plugin)},
			admission.Plugin{Name: "other", Plugin: mutator(func(req *admission.Request) {
				if test.isChangedLater {
					req.Object.(*corev1.ConfigMap).Data["a"] = "other"
				}
				req.RequestReinvocation()
			})},
		)
		// A new run of the chain keeps no state of the previous one.
		for range 2 {
			secondCalls = nil
			if err := chain.Mutate(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(secondCalls, " "); got != test.wantSecondCalls {
				t.Errorf("%s: got second calls of %q, want %q", name, got, test.wantSecondCalls)
			}
			if o, ok := req.Object.(*corev1.ConfigMap); ok {
				o.Data["a"] = "b"
			}
		}
	}
}

// TestReinvocationStateIsPerRun checks that a new run of the chain keeps no state, and that a
// plugin without a first call makes no second one.
func TestReinvocationStateIsPerRun(t *testing.T) {
	type key struct{}
	req := &admission.Request{Operation: admission.Create, Resource: configMaps, Object: configMap(func(*corev1.ConfigMap) {})}
	for _, run := range []struct {
		name            string
		changesObject   bool
		skipsFirstCall  bool
		wantsSecondCall bool
	}{
		{name: "first run, object changes", changesObject: true, wantsSecondCall: true},
		{name: "no change"},
		{name: "no first call", skipsFirstCall: true},
		{name: "last run, object changes", changesObject: true, wantsSecondCall: true},
	} {
		isCalledAgain := false
		chain := admission.NewChain(nil, admission.Plugin{Name: "it", Plugin: mutator(func(req *admission.Request) {
			req.RequestReinvocation()
			if run.skipsFirstCall && !req.Reinvoked() {
				req.SetState(key{}, nil)
				return
			}
			calls := req.Reinvocation(key{})
			if calls.ShouldCall("a") {
				isCalledAgain = req.Reinvoked()
				calls.WantsReinvocation("a")
			}
			if run.changesObject && !req.Reinvoked() {
				calls.Changed()
			}
			calls.End()
		})})
		if err := chain.Mutate(t.Context(), req); err != nil || isCalledAgain != run.wantsSecondCall {
			t.Errorf("%s: got error %v and a second call: %t, want no error and %t", run.name, err, isCalledAgain, run.wantsSecondCall)
		}
	}
}

// mutator is a mutating plugin.
type mutator func(*admission.Request)

func (m mutator) Admit(_ context.Context, r *admission.Request) error { m(r); return nil }

// fixedLevel is an audit policy with one level.
type fixedLevel struct{ level audit.Level }

func (a fixedLevel) Decide(*requestinfo.Info, *request.User) audit.Decision {
	return audit.Decision{Level: a.level}
}

// lineSink records the lines of audit events.
type lineSink struct{ lines []string }

func (n *lineSink) Process(_ context.Context, e *audit.Event) error {
	n.lines = append(n.lines, string(e.AppendLine(nil)))
	return nil
}

// TestDetailsAreAuditedOnlyTogetherWithBodies checks that details are recorded only together with
// bodies, also for rejected requests.
func TestDetailsAreAuditedOnlyTogetherWithBodies(t *testing.T) {
	for level, wantDetails := range map[audit.Level]bool{audit.Metadata: false, audit.Request: true, audit.RequestResponse: true} {
		sink := &lineSink{}
		auditor := audit.New(audit.Config{
			Policy: fixedLevel{level}, Sinks: []audit.Sink{sink},
			Metrics: audit.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
			MaxObject: 1 << 10, MaxObjects: 1 << 20,
		})
		event := auditor.Open(
			&requestinfo.Info{Verb: "create"},
			&request.User{},
			func() audit.ReceivedRequest { return audit.ReceivedRequest{ID: "x"} },
		)
		chain := admission.NewChain(nil, admission.Plugin{Name: "it", Plugin: rejecter{}})
		req := &admission.Request{Operation: admission.Create, Resource: configMaps}
		ctx, state := request.Derive(t.Context())
		state.AuditEvent = event
		if err := chain.Validate(ctx, req); err == nil {
			t.Errorf("%v: Validate: got no error, want the rejection", level)
		}
		event.End(t.Context(), nil)
		got := strings.Join(sink.lines, "\n")
		if !strings.Contains(got, `"a/word":"1"`) {
			t.Errorf("%v: got %s, want it to contain the annotation a/word", level, got)
		}
		if has := strings.Contains(got, `"a/detail":"1"`); has != wantDetails {
			t.Errorf("%v: got annotation a/detail: %t, want %t", level, has, wantDetails)
		}
		if strings.Contains(got, `"2"`) {
			t.Errorf("%v: got %s, want the first values kept, none of 2", level, got)
		}
		if d := req.Details(); len(d) != 1 || d["a/detail"] != "1" {
			t.Errorf("%v: got details %v, want only a/detail=1", level, d)
		}
	}
}

// rejecter rejects requests, with an annotation and a detail.
type rejecter struct{}

func (rejecter) Validate(_ context.Context, r *admission.Request) error {
	for _, v := range []string{"1", "2"} { // the first value wins
		r.Annotate("a/word", v)
		r.Detail("a/detail", v)
	}
	return errors.New("no")
}

// externalCaller calls external services for one operation.
type externalCaller struct{ operation admission.Operation }

func (o externalCaller) CallsExternal(_ context.Context, r *admission.Request) bool {
	return r.Operation == o.operation
}

// TestChainCallsExternalIfAnyPluginDoes checks that a chain calls external services if any plugin
// does.
func TestChainCallsExternalIfAnyPluginDoes(t *testing.T) {
	chain := admission.NewChain(nil, admission.Plugin{Name: "a", Plugin: externalCaller{admission.Create}}, admission.Plugin{
		Name: "b", Plugin: externalCaller{admission.Update},
	})
	for op, want := range map[admission.Operation]bool{admission.Create: true, admission.Update: true, admission.Delete: false} {
		if got := chain.CallsExternal(t.Context(), &admission.Request{Operation: op}); got != want {
			t.Errorf("CallsExternal of a request to %s = %t, want %t", op, got, want)
		}
	}
}

// TestMetricsCountCallsByPhaseAndResult checks that durations are recorded by phase and result.
func TestMetricsCountCallsByPhaseAndResult(t *testing.T) {
	var calls []string
	registry := prometheus.NewRegistry()
	admits, rejectsValidate := &plugin{name: "a", calls: &calls}, &plugin{name: "b", calls: &calls, reject: "validate"}
	rejectsReserve := &plugin{name: "c", calls: &calls, reject: "reserve"}
	chain := admission.NewChain(admission.NewMetrics(registry), admission.Plugin{Name: "a", Plugin: admits},
		admission.Plugin{Name: "b", Plugin: rejectsValidate}, admission.Plugin{Name: "c", Plugin: rejectsReserve})
	req := &admission.Request{Operation: admission.Create}
	if err := chain.Mutate(t.Context(), req); err != nil {
		t.Errorf("Mutate: got error %v, want none", err)
	}
	if err := chain.Validate(t.Context(), req); err == nil {
		t.Error("Validate: got no error, want the rejection of plugin b")
	}
	if _, err := chain.Reserve(t.Context(), req); err == nil {
		t.Error("Reserve: got no error, want the rejection of plugin c")
	}
	families, err := registry.Gather()
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
	// Each series is followed by its labels: for a plugin its name, the result (rejected) and the
	// phase, for a phase the result and the phase.
	const pluginSeries, phaseSeries = "controller_admission_duration_seconds ", "step_admission_duration_seconds "
	want := map[string]uint64{
		pluginSeries + "a false admit": 1, pluginSeries + "b false admit": 1, pluginSeries + "c false admit": 1, pluginSeries + "a false validate": 2,
		pluginSeries + "b true validate":  1,
		pluginSeries + "b false validate": 1, pluginSeries + "c true validate": 1, phaseSeries + "false admit": 1, phaseSeries + "true validate": 1,
		"step_admission_duration_seconds_summary false admit": 0, "step_admission_duration_seconds_summary true validate": 0,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got sample counts %v, want %v", got, want)
	}
}
