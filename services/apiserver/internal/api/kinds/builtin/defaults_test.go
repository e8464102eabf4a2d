package builtin_test

import (
	"encoding/json"
	"maps"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// text returns an object as clients see it.
func text(t *testing.T, o any) string {
	t.Helper()
	data, err := json.MarshalIndent(o, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestDefaults checks the defaults that depend on other fields.
func TestDefaults(t *testing.T) {
	type defaultsCase struct {
		Name   string         `json:"name"`
		Kind   string         `json:"kind"`
		Object map[string]any `json:"object"`
		Want   map[string]any `json:"want"`
	}
	kinds := byName(t)
	for _, c := range readCases[defaultsCase](t, "defaults.yaml") {
		t.Run(c.Name, func(t *testing.T) {
			k := kinds[c.Kind]
			if k == nil {
				t.Fatalf("no kind %s", c.Kind)
			}
			obj, want := decode(t, k, c.Object), decode(t, k, c.Want)
			k.Default(obj)
			if got, want := text(t, obj), text(t, want); got != want {
				t.Fatalf("got\n%s\nwant\n%s", got, want)
			}
			again := decode(t, k, c.Want)
			k.Default(again)
			if !equality.Semantic.DeepEqual(again, want) {
				t.Errorf("defaulting twice: got\n%s", text(t, again))
			}
		})
	}
}

// TestJobCreate checks that a job labels and selects its pods by its uid.
func TestJobCreate(t *testing.T) {
	kind := byName(t)["batch/v1/jobs"]
	yes := true
	marks := map[string]string{
		"batch.kubernetes.io/controller-uid": "u", "controller-uid": "u",
		"batch.kubernetes.io/job-name": "j", "job-name": "j",
	}
	with := func(key, value string) map[string]string {
		out := maps.Clone(marks)
		out[key] = value
		return out
	}
	uid := map[string]string{"batch.kubernetes.io/controller-uid": "u"}
	tests := []struct {
		name                 string
		labels, pods         map[string]string
		selector             *metav1.LabelSelector
		manual               *bool
		wantLabels, wantPods map[string]string
		wantSelector         map[string]string
	}{
		{name: "no labels", wantLabels: marks, wantPods: marks, wantSelector: uid},
		{
			name:         "labels of the pods",
			pods:         map[string]string{"app": "x"},
			wantLabels:   with("app", "x"),
			wantPods:     with("app", "x"),
			wantSelector: uid,
		},
		{
			name:         "labels of both",
			labels:       map[string]string{"app": "x"},
			pods:         map[string]string{"app": "x"},
			wantLabels:   map[string]string{"app": "x"},
			wantPods:     with("app", "x"),
			wantSelector: uid,
		},
		{
			name:         "labels of the client are kept",
			labels:       map[string]string{"a": "b"},
			pods:         map[string]string{"controller-uid": "other"},
			wantLabels:   map[string]string{"a": "b"},
			wantPods:     with("controller-uid", "other"),
			wantSelector: uid,
		},
		{
			name:     "by hand",
			labels:   map[string]string{"a": "b"},
			pods:     map[string]string{"app": "x"},
			manual:   &yes,
			selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
			wantLabels: map[string]string{
				"a": "b",
			},
			wantPods:     map[string]string{"app": "x"},
			wantSelector: map[string]string{"app": "x"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "u", Labels: tt.labels}, Spec: batchv1.JobSpec{
				ManualSelector: tt.manual,
				Selector:       tt.selector,
				Template:       corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: tt.pods}},
			}}
			kind.Default(j)
			kind.Create.Prepare(j)
			if !maps.Equal(j.Labels, tt.wantLabels) {
				t.Errorf("got labels %v, want %v", j.Labels, tt.wantLabels)
			}
			if !maps.Equal(j.Spec.Template.Labels, tt.wantPods) {
				t.Errorf("got pods' labels %v, want %v", j.Spec.Template.Labels, tt.wantPods)
			}
			if !maps.Equal(j.Spec.Selector.MatchLabels, tt.wantSelector) {
				t.Errorf("got selector %v, want %v", j.Spec.Selector.MatchLabels, tt.wantSelector)
			}
		})
	}
}
