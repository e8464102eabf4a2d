package valuediff

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestTextShowsChangedFields checks the text for changes of all kinds of fields.
func TestTextShowsChangedFields(t *testing.T) {
	grace := int64(30)
	old := corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace,
		NodeSelector:                  map[string]string{"a": "b", "c": "d"},
		Containers: []corev1.Container{
			{Name: "c", Image: "x", Command: []string{"a", "b"}, Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("1")},
			}},
			{Name: "d"},
		},
	}
	now := *old.DeepCopy()
	*now.TerminationGracePeriodSeconds = 5
	now.NodeSelector["a"], now.NodeSelector["z"] = "e", "1"
	now.Containers[0].Command[1] = "x"
	now.Containers[0].Resources.Requests["cpu"] = resource.MustParse("2")
	now.Containers = now.Containers[:1]
	now.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}

	got := Text(old, now)
	for _, want := range []string{
		"  v1.PodSpec{\n",
		"- \tTerminationGracePeriodSeconds: &30,\n+ \tTerminationGracePeriodSeconds: &5,\n",
		"  \tNodeSelector: map[string]string{\n- \t\t\"a\": \"b\",\n+ \t\t\"a\": \"e\",\n  \t\t\"c\": \"d\",\n+ \t\t\"z\": \"1\",\n  \t},\n",
		"  \t\t\tCommand: []string{\n  \t\t\t\t\"a\",\n- \t\t\t\t\"b\",\n+ \t\t\t\t\"x\",\n",
		"- \t\t\t\t\t\"cpu\": \"1\",\n+ \t\t\t\t\t\"cpu\": \"2\",\n",
		"- \t\tv1.Container{Name: \"d\"},\n",
		"- \tAffinity: nil,\n+ \tAffinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{}},\n",
		"  \t... // 16 identical\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the difference lacks %q:\n%s", want, got)
		}
	}
}

// TestTextIsEmptyForEqualValues checks that quantities are compared by value.
func TestTextIsEmptyForEqualValues(t *testing.T) {
	list := func(s string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(s)} }
	if got := Text(list("1"), list("1000m")); got != "" {
		t.Errorf("got %q", got)
	}
}

// TestTextOfLargeValuesIsBounded checks the length for many long values.
func TestTextOfLargeValuesIsBounded(t *testing.T) {
	old, now := corev1.PodSpec{NodeName: strings.Repeat("ä", 1<<20)}, corev1.PodSpec{}
	for range 10_000 {
		now.Tolerations = append(now.Tolerations, corev1.Toleration{Key: strings.Repeat("x", 1000)})
	}
	old.Tolerations = make([]corev1.Toleration, len(now.Tolerations))
	got := Text(old, now)
	if len(got) > maxDiff+4*maxDiffValue || !strings.HasSuffix(got, "... // more differences\n") {
		t.Errorf("got %d bytes that end with %q", len(got), got[max(len(got)-100, 0):])
	}
}
