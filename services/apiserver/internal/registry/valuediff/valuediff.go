// Package valuediff describes the difference of two API objects in error messages.
package valuediff

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
)

const (
	// diffContext is the number of equal fields or elements around a changed one.
	diffContext = 2
	// maxDiff bounds the bytes of a difference, and maxDiffValue those of one value in it.
	maxDiff      = 16 << 10
	maxDiffValue = 256
)

// Text returns the difference of two values of the same type. Lines begin with "- " or
// "+ " if they are only in old or now. Programs must not parse the text. It is empty for equal values.
func Text(old, now any) string {
	d := &differ{}
	d.value(0, "", reflect.ValueOf(old), reflect.ValueOf(now))
	return d.text.String()
}

// differ writes a difference.
type differ struct{ text strings.Builder }

// line writes a line. After maxDiff bytes it writes nothing.
func (d *differ) line(mark string, depth int, text string) {
	const end = "  ... // more differences\n"
	switch {
	case d.text.Len() < maxDiff:
		d.text.WriteString(mark + " " + strings.Repeat("\t", depth) + text + "\n")
	case !strings.HasSuffix(d.text.String(), end):
		d.text.WriteString(end)
	}
}

// value writes the difference of two values, which begins with a label such as the name of a field.
func (d *differ) value(depth int, label string, old, now reflect.Value) {
	if equalValues(old, now) {
		return
	}
	parts := splitValue(old, now)
	if parts == nil {
		d.line("-", depth, label+formatValue(old)+comma(depth))
		d.line("+", depth, label+formatValue(now)+comma(depth))
		return
	}
	for old.Kind() == reflect.Pointer {
		label, old = label+"&", old.Elem()
	}
	d.line(" ", depth, label+old.Type().String()+"{")
	d.parts(depth+1, parts)
	d.line(" ", depth, "}"+comma(depth))
}

// parts writes the differences of parts, with some equal ones around them.
func (d *differ) parts(depth int, parts []part) {
	shown := make([]bool, len(parts))
	for i, p := range parts {
		if p.differs() {
			for j := max(i-diffContext, 0); j <= min(i+diffContext, len(parts)-1); j++ {
				shown[j] = true
			}
		}
	}
	for i := 0; i < len(parts); {
		if hidden := slices.Index(shown[i:], true); hidden != 0 {
			if hidden < 0 {
				hidden = len(parts) - i
			}
			d.line(" ", depth, fmt.Sprintf("... // %d identical", hidden))
			i += hidden
			continue
		}
		switch p := parts[i]; {
		case !p.old.IsValid():
			d.line("+", depth, p.label+formatValue(p.now)+",")
		case !p.now.IsValid():
			d.line("-", depth, p.label+formatValue(p.old)+",")
		case p.differs():
			d.value(depth, p.label, p.old, p.now)
		default:
			d.line(" ", depth, p.label+formatValue(p.now)+",")
		}
		i++
	}
}

// part is a field, an element or an entry. It is invalid where it is missing.
type part struct {
	label    string
	old, now reflect.Value
}

func (p part) differs() bool {
	return !p.old.IsValid() || !p.now.IsValid() || !equalValues(p.old, p.now)
}

// splitValue returns the parts of two values, or nil if the values are shown as a whole.
func splitValue(old, now reflect.Value) (parts []part) {
	for old.Kind() == reflect.Pointer && !old.IsNil() && !now.IsNil() {
		old, now = old.Elem(), now.Elem()
	}
	switch old.Kind() {
	case reflect.Struct:
		if hasText(old) {
			return nil
		}
		for i := range old.NumField() {
			parts = append(parts, part{old.Type().Field(i).Name + ": ", old.Field(i), now.Field(i)})
		}
	case reflect.Slice:
		if old.Len() == 0 || now.Len() == 0 || old.Type().Elem().Kind() == reflect.Uint8 {
			return nil
		}
		for i := range max(old.Len(), now.Len()) {
			p := part{}
			if i < old.Len() {
				p.old = old.Index(i)
			}
			if i < now.Len() {
				p.now = now.Index(i)
			}
			parts = append(parts, p)
		}
	case reflect.Map:
		if old.Len() == 0 || now.Len() == 0 {
			return nil
		}
		for _, key := range allKeys(old, now) {
			parts = append(parts, part{formatValue(key) + ": ", old.MapIndex(key), now.MapIndex(key)})
		}
	}
	return parts
}

// allKeys returns the keys of maps whose keys are strings.
func allKeys(maps ...reflect.Value) (keys []reflect.Value) {
	for _, m := range maps {
		keys = append(keys, m.MapKeys()...)
	}
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	return slices.CompactFunc(keys, func(a, b reflect.Value) bool { return a.String() == b.String() })
}

// equalValues reports whether two values are equal as API objects are.
func equalValues(old, now reflect.Value) bool {
	return equality.Semantic.DeepEqual(old.Interface(), now.Interface())
}

// hasText reports whether a struct has no exported fields to show, such as a quantity or a time, but
// a text.
func hasText(v reflect.Value) bool {
	if _, ok := v.Interface().(fmt.Stringer); ok && v.Kind() == reflect.Struct {
		return true
	}
	return slices.ContainsFunc(reflect.VisibleFields(v.Type()), func(f reflect.StructField) bool { return !f.IsExported() })
}

// formatValue returns a value on one line, shortened to maxDiffValue bytes.
func formatValue(v reflect.Value) string {
	var out strings.Builder
	writeValue(&out, v)
	if out.Len() > maxDiffValue {
		return strings.ToValidUTF8(out.String()[:maxDiffValue], "") + "..."
	}
	return out.String()
}

// writeValue writes a value until out is longer than maxDiffValue.
func writeValue(out *strings.Builder, v reflect.Value) {
	if out.Len() > maxDiffValue {
		return
	}
	list := func(n int, write func(i int)) {
		out.WriteString(v.Type().String() + "{")
		for i := range n {
			if i > 0 {
				out.WriteString(", ")
			}
			write(i)
		}
		out.WriteByte('}')
	}
	switch kind := v.Kind(); {
	case kind == reflect.String:
		text := v.String()
		out.WriteString(strconv.Quote(text[:min(len(text), maxDiffValue)]))
	case (kind == reflect.Pointer || kind == reflect.Slice || kind == reflect.Map) && v.IsNil():
		out.WriteString("nil")
	case kind == reflect.Pointer:
		out.WriteByte('&')
		writeValue(out, v.Elem())
	case kind == reflect.Slice:
		list(v.Len(), func(i int) { writeValue(out, v.Index(i)) })
	case kind == reflect.Map:
		keys := allKeys(v)
		list(len(keys), func(i int) {
			out.WriteString(formatValue(keys[i]) + ": ")
			writeValue(out, v.MapIndex(keys[i]))
		})
	case kind == reflect.Struct && !hasText(v):
		var fields []int
		for i := range v.NumField() {
			if !v.Field(i).IsZero() {
				fields = append(fields, i)
			}
		}
		list(len(fields), func(i int) {
			out.WriteString(v.Type().Field(fields[i]).Name + ": ")
			writeValue(out, v.Field(fields[i]))
		})
	default:
		writeText(out, v)
	}
}

// writeText writes a value that has no parts.
func writeText(out *strings.Builder, v reflect.Value) {
	pointer := reflect.New(v.Type())
	pointer.Elem().Set(v)
	if s, ok := pointer.Interface().(fmt.Stringer); ok {
		fmt.Fprintf(out, "%q", s.String())
		return
	}
	fmt.Fprint(out, v.Interface())
}

// comma returns the comma after a part of another value.
func comma(depth int) string {
	if depth == 0 {
		return ""
	}
	return ","
}
