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

// TestDefaultsFollowOtherFields checks the defaults that depend on other fields.
func TestDefaultsFollowOtherFields(t *testing.T) {
	type defaultsCase struct {
		Name   string         `json:"name"`
		Kind   string         `json:"kind"`
		Object map[string]any `json:"object"`
		Want   map[string]any `json:"want"`
	}
	kinds := byName(t)
	for _, c := range readCases[defaultsCase](t, "defaults.yaml") {
		t.Run(c.Name, func(t *testing.T) {
			kind := kinds[c.Kind]
			if kind == nil {
				t.Fatalf("no kind %s", c.Kind)
			}
			obj, want := decode(t, kind, c.Object), decode(t, kind, c.Want)
			kind.Default(obj)
			if got, want := text(t, obj), text(t, want); got != want {
				t.Fatalf("got\n%s\nwant\n%s", got, want)
			}
			again := decode(t, kind, c.Want)
			kind.Default(again)
			if !equality.Semantic.DeepEqual(again, want) {
				t.Errorf("defaulting twice: got\n%s", text(t, again))
			}
		})
	}
}

// TestJobLabelsAndSelectsItsPodsByUID checks that a job labels and selects its pods by its uid.
func TestJobLabelsAndSelectsItsPodsByUID(t *testing.T) {
	kind := byName(t)["batch/v1/jobs"]
	manual := true
	jobLabels := map[string]string{
		"batch.kubernetes.io/controller-uid": "u", "controller-uid": "u",
		"batch.kubernetes.io/job-name": "j", "job-name": "j",
	}
	jobLabelsWith := func(key, value string) map[string]string {
		out := maps.Clone(jobLabels)
		out[key] = value
		return out
	}
	uid := map[string]string{"batch.kubernetes.io/controller-uid": "u"}
	tests := []struct {
		name                      string
		labels, podLabels         map[string]string
		selector                  *metav1.LabelSelector
		manual                    *bool
		wantLabels, wantPodLabels map[string]string
		wantSelector              map[string]string
	}{
		{name: "no labels", wantLabels: jobLabels, wantPodLabels: jobLabels, wantSelector: uid},
		{
			name:          "labels of the pods",
			podLabels:     map[string]string{"app": "x"},
			wantLabels:    jobLabelsWith("app", "x"),
			wantPodLabels: jobLabelsWith("app", "x"),
			wantSelector:  uid,
		},
		{
			name:          "labels of both",
			labels:        map[string]string{"app": "x"},
			podLabels:     map[string]string{"app": "x"},
			wantLabels:    map[string]string{"app": "x"},
			wantPodLabels: jobLabelsWith("app", "x"),
			wantSelector:  uid,
		},
		{
			name:          "labels of the client are kept",
			labels:        map[string]string{"a": "b"},
			podLabels:     map[string]string{"controller-uid": "other"},
			wantLabels:    map[string]string{"a": "b"},
			wantPodLabels: jobLabelsWith("controller-uid", "other"),
			wantSelector:  uid,
		},
		{
			name:      "manual selector",
			labels:    map[string]string{"a": "b"},
			podLabels: map[string]string{"app": "x"},
			manual:    &manual,
			selector:  &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
			wantLabels: map[string]string{
				"a": "b",
			},
			wantPodLabels: map[string]string{"app": "x"},
			wantSelector:  map[string]string{"app": "x"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "u", Labels: tt.labels}, Spec: batchv1.JobSpec{
				ManualSelector: tt.manual,
				Selector:       tt.selector,
				Template:       corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: tt.podLabels}},
			}}
			kind.Default(job)
			kind.Create.Prepare(job)
			if !maps.Equal(job.Labels, tt.wantLabels) {
				t.Errorf("got labels %v, want %v", job.Labels, tt.wantLabels)
			}
			if !maps.Equal(job.Spec.Template.Labels, tt.wantPodLabels) {
				t.Errorf("got pods' labels %v, want %v", job.Spec.Template.Labels, tt.wantPodLabels)
			}
			if !maps.Equal(job.Spec.Selector.MatchLabels, tt.wantSelector) {
				t.Errorf("got selector %v, want %v", job.Spec.Selector.MatchLabels, tt.wantSelector)
			}
		})
	}
}
