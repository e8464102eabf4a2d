package columns

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"binnacle/services/apiserver/internal/registry"
)

// Texts of empty cells.
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

// New returns a column whose cell is computed from the kind's Go type. The cell is nil for an
// object of another type.
func New[T registry.Object](name, typ, format, desc string, priority int32, cell func(T) any) registry.Column {
	return registry.Column{
		Name:        name,
		Type:        typ,
		Format:      format,
		Description: desc,
		Priority:    priority,
		Cell: func(o registry.Object) any {
			t, ok := o.(T)
			if !ok {
				return nil
			}
			return cell(t)
		},
	}
}

// Text returns a string column of the normal output.
func Text[T registry.Object](name, desc string, cell func(T) string) registry.Column {
	return New(name, String, "", desc, 0, func(o T) any { return cell(o) })
}

// WideText returns a string column of the wide output.
func WideText[T registry.Object](name, desc string, cell func(T) string) registry.Column {
	return New(name, String, "", desc, 1, func(o T) any { return cell(o) })
}

// Int returns an integer column of the normal output.
func Int[T registry.Object](name, desc string, cell func(T) int64) registry.Column {
	return New(name, Integer, "", desc, 0, func(o T) any { return cell(o) })
}

// Bool returns a boolean column of the normal output.
func Bool[T registry.Object](name, desc string, cell func(T) bool) registry.Column {
	return New(name, Boolean, "", desc, 0, func(o T) any { return cell(o) })
}

// Name returns the column of metadata.name.
func Name() registry.Column { return nameColumn(0) }

// WideName returns the column of metadata.name for the wide output.
func WideName() registry.Column { return nameColumn(1) }

func nameColumn(priority int32) registry.Column {
	return New("Name", String, "name", Doc(metav1.ObjectMeta{}, "name"), priority,
		func(o registry.Object) any { return o.GetName() })
}

// Age returns the column of metadata.creationTimestamp.
func Age() registry.Column {
	return New("Age", String, "", Doc(metav1.ObjectMeta{}, "creationTimestamp"), 0,
		func(o registry.Object) any { return Since(o.GetCreationTimestamp()) })
}

// Unnamed removes a column from the column definitions of a table. Its cells stay in the rows.
func Unnamed(c registry.Column) registry.Column {
	c.Name = ""
	return c
}

// Since returns the cell with the time since t.
func Since(t metav1.Time) registry.Age { return registry.Age{Since: t} }

// SinceMicro returns the age of a MicroTime like Since.
func SinceMicro(t metav1.MicroTime) registry.Age {
	return registry.Age{Since: metav1.NewTime(t.Time)}
}

// Documented is an API type with documentation of its fields.
type Documented interface{ SwaggerDoc() map[string]string }

// Doc returns the documentation of a field, by its JSON name; "" stands for the type.
func Doc(documented Documented, field string) string { return documented.SwaggerDoc()[field] }

// Containers returns the names and the images of containers, each joined by commas.
func Containers(cs []corev1.Container) (names, images string) {
	nameList := make([]string, len(cs))
	imageList := make([]string, len(cs))
	for i := range cs {
		nameList[i] = cs[i].Name
		imageList[i] = cs[i].Image
	}
	return strings.Join(nameList, ","), strings.Join(imageList, ",")
}

// ContainerNames returns the names of containers, joined by commas.
func ContainerNames(cs []corev1.Container) string {
	names, _ := Containers(cs)
	return names
}

// ContainerImages returns the images of containers, joined by commas.
func ContainerImages(cs []corev1.Container) string {
	_, images := Containers(cs)
	return images
}

// Selector returns the text of a label selector, or None if it selects nothing.
func Selector(s *metav1.LabelSelector) string { return metav1.FormatLabelSelector(s) }

// Labels returns the text of a set of labels, or None if it is empty.
func Labels(l map[string]string) string { return labels.FormatLabels(l) }

// OrNone returns s, or None if s is empty.
func OrNone(s string) string { return cmp.Or(s, None) }

// First joins the first max texts by commas and appends the number of remaining ones. It returns
// None without texts.
func First(texts []string, max int) string {
	if len(texts) == 0 {
		return None
	}
	if len(texts) <= max {
		return strings.Join(texts, ",")
	}
	return strings.Join(texts[:max], ",") + fmt.Sprintf(" + %d more...", len(texts)-max)
}
