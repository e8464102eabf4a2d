package columns

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"binnacle/services/apiserver/internal/registry"
)

// Texts of cells that have nothing to show.
const (
	None    = "<none>"
	Unset   = "<unset>"
	Unknown = "<unknown>"
)

// Types of columns.
const (
	String  = "string"
	Integer = "integer"
	Boolean = "boolean"
)

// Of makes a column whose cell is computed from the kind's own Go type. The
// cell is nil for an object of another type.
func Of[T registry.Object](name, typ, format, desc string, priority int32, cell func(T) any) registry.Column {
	return registry.Column{
		Name: name, Type: typ, Format: format, Description: desc, Priority: priority,
		Cell: func(o registry.Object) any {
			t, ok := o.(T)
			if !ok {
				return nil
			}
			return cell(t)
		},
	}
}

// Text makes a string column of the ordinary output.
func Text[T registry.Object](name, desc string, cell func(T) string) registry.Column {
	return Of(name, String, "", desc, 0, func(o T) any { return cell(o) })
}

// WideText makes a string column of the wide output.
func WideText[T registry.Object](name, desc string, cell func(T) string) registry.Column {
	return Of(name, String, "", desc, 1, func(o T) any { return cell(o) })
}

// Int makes an integer column of the ordinary output.
func Int[T registry.Object](name, desc string, cell func(T) int64) registry.Column {
	return Of(name, Integer, "", desc, 0, func(o T) any { return cell(o) })
}

// Bool makes a boolean column of the ordinary output.
func Bool[T registry.Object](name, desc string, cell func(T) bool) registry.Column {
	return Of(name, Boolean, "", desc, 0, func(o T) any { return cell(o) })
}

// Name is the column of metadata.name.
func Name() registry.Column { return named(0) }

// WideName is Name for kinds that show it in wide output only.
func WideName() registry.Column { return named(1) }

func named(priority int32) registry.Column {
	return Of("Name", String, "name", Doc(metav1.ObjectMeta{}, "name"), priority,
		func(o registry.Object) any { return o.GetName() })
}

// Age is the column of metadata.creationTimestamp.
func Age() registry.Column {
	return Of("Age", String, "", Doc(metav1.ObjectMeta{}, "creationTimestamp"), 0,
		func(o registry.Object) any { return Since(o.GetCreationTimestamp()) })
}

// Untold makes the cells of a column stand in the rows of a table whose columns
// do not tell it.
func Untold(c registry.Column) registry.Column {
	c.Name = ""
	return c
}

// Since is the cell that shows the time since t.
func Since(t metav1.Time) registry.Age { return registry.Age{Since: t} }

// SinceMicro is Since for a time of microseconds.
func SinceMicro(t metav1.MicroTime) registry.Age {
	return registry.Age{Since: metav1.NewTime(t.Time)}
}

// SincePtr is Since for a time that may be absent.
func SincePtr(t *metav1.Time) registry.Age {
	if t == nil {
		return registry.Age{}
	}
	return Since(*t)
}

// Documented is an API type that carries the documentation of its fields.
type Documented interface{ SwaggerDoc() map[string]string }

// Doc is the documentation of a field, by its JSON name; "" documents the type.
func Doc(of Documented, field string) string { return of.SwaggerDoc()[field] }

// Containers tells the names and the images of containers, each joined by
// commas.
func Containers(cs []corev1.Container) (names, images string) {
	n, i := make([]string, len(cs)), make([]string, len(cs))
	for k := range cs {
		n[k], i[k] = cs[k].Name, cs[k].Image
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}

// ContainerNames is the first half of Containers.
func ContainerNames(cs []corev1.Container) string {
	names, _ := Containers(cs)
	return names
}

// ContainerImages is the second half of Containers.
func ContainerImages(cs []corev1.Container) string {
	_, images := Containers(cs)
	return images
}

// Selector is the text of a label selector; None when it selects nothing.
func Selector(s *metav1.LabelSelector) string { return metav1.FormatLabelSelector(s) }

// Labels is the text of a set of labels; None when it is empty.
func Labels(l map[string]string) string { return labels.FormatLabels(l) }

// OrNone shows None in place of an empty text.
func OrNone(s string) string { return Or(s, None) }

// Or shows a substitute in place of an empty text.
func Or(s, substitute string) string {
	if s == "" {
		return substitute
	}
	return s
}

// First joins the first max texts by commas and says how many more there are;
// None when there are none.
func First(texts []string, max int) string {
	if len(texts) == 0 {
		return None
	}
	if len(texts) <= max {
		return strings.Join(texts, ",")
	}
	return strings.Join(texts[:max], ",") + fmt.Sprintf(" + %d more...", len(texts)-max)
}
