package columns_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
)

// TestColumnHasTypePriorityAndCell checks the type, priority and cell of each kind of column, and that the cell is
// nil for an object of another type.
func TestColumnHasTypePriorityAndCell(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", HostNetwork: true, Containers: make([]corev1.Container, 2)}}
	for _, test := range []struct {
		column   registry.Column
		typ      string
		priority int32
		cell     any
	}{
		{column: columns.Text("T", "d", func(p *corev1.Pod) string { return p.Spec.NodeName }), typ: "string", cell: "n"},
		{
			column:   columns.WideText("W", "d", func(p *corev1.Pod) string { return p.Spec.NodeName }),
			typ:      "string",
			priority: 1,
			cell:     "n",
		},
		{
			column: columns.Int("I", "d", func(p *corev1.Pod) int64 { return int64(len(p.Spec.Containers)) }),
			typ:    "integer",
			cell:   int64(2),
		},
		{column: columns.Bool("B", "d", func(p *corev1.Pod) bool { return p.Spec.HostNetwork }), typ: "boolean", cell: true},
	} {
		c := test.column
		if c.Type != test.typ || c.Priority != test.priority || c.Description != "d" {
			t.Errorf("%s: got column %+v, want type %s, priority %d, description d", c.Name, c, test.typ, test.priority)
		}
		if got := c.Cell(pod); got != test.cell {
			t.Errorf("%s: got cell %v, want %v", c.Name, got, test.cell)
		}
		if got := c.Cell(&corev1.Node{}); got != nil {
			t.Errorf("%s: got cell of another type %v, want nil", c.Name, got)
		}
	}
}

// TestCellTextsOfEmptyValues checks the texts of cells, including those of empty values.
func TestCellTextsOfEmptyValues(t *testing.T) {
	containers := []corev1.Container{{Name: "a", Image: "x:1"}, {Name: "b", Image: "y"}}
	names, images := columns.Containers(containers)
	for _, test := range []struct{ name, got, want string }{
		{name: "names", got: names, want: "a,b"},
		{name: "images", got: images, want: "x:1,y"},
		{name: "container names", got: columns.ContainerNames(containers), want: "a,b"},
		{name: "container images", got: columns.ContainerImages(containers), want: "x:1,y"},
		{name: "no containers", got: columns.ContainerNames(nil)},
		{name: "labels", got: columns.Labels(map[string]string{"b": "2", "a": "1"}), want: "a=1,b=2"},
		{name: "no labels", got: columns.Labels(nil), want: "<none>"},
		{
			name: "selector",
			got:  columns.Selector(&metav1.LabelSelector{MatchLabels: map[string]string{"a": "1"}}),
			want: "a=1",
		},
		{name: "empty selector", got: columns.Selector(&metav1.LabelSelector{}), want: "<none>"},
		{name: "no selector", got: columns.Selector(nil), want: "<none>"},
		{name: "or none", got: columns.OrNone(""), want: "<none>"},
		{name: "not none", got: columns.OrNone("x"), want: "x"},
		{name: "first of none", got: columns.First(nil, 3), want: "<none>"},
		{name: "first of few", got: columns.First([]string{"a", "b", "c"}, 3), want: "a,b,c"},
		{name: "first of many", got: columns.First([]string{"a", "b", "c", "d", "e"}, 3), want: "a,b,c + 2 more..."},
		{
			name: "doc",
			got:  columns.Doc(corev1.NodeSystemInfo{}, "osImage"),
			want: "OS Image reported by the node from /etc/os-release (e.g. Debian GNU/Linux 7 (wheezy)).",
		},
	} {
		if test.got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, test.got, test.want)
		}
	}
}
