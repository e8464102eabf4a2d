package request

import (
	"math"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// MaxRequirements is how many requirements the selectors of a request may have: each
// is held against every object, and every event of a watch.
const MaxRequirements = 1000

// Crowded tells that the selectors have more requirements than MaxRequirements. They are
// not worth being read: the request is refused, whoever may make it.
func (o *Operation) Crowded() bool {
	return requirements(MaxRequirements, o.FieldSelector, o.LabelSelector) > MaxRequirements
}

// Requirements counts the requirements of selectors without reading them.
func Requirements(selectors ...string) (n int) { return requirements(math.MaxInt, selectors...) }

// requirements is Requirements that looks no further once there are more than so many.
func requirements(most int, selectors ...string) (n int) {
	for _, s := range selectors {
		if s == "" {
			continue
		}
		n++
		depth := 0 // of the values of one label
		for i := 0; i < len(s) && n <= most; i++ {
			switch s[i] {
			case '\\': // in the value of a field
				i++
			case '(':
				depth++
			case ')':
				depth--
			case ',':
				if depth <= 0 {
					n++
				}
			}
		}
	}
	return n
}

// Selectors are those of a request, read once: that takes 2 µs a value, and flow control, authorizers and
// the answer ask for them.
type Selectors struct {
	label, field string

	readLabels, readFields sync.Once
	labels                 labels.Selector
	fields                 fields.Selector
	badLabels, badFields   error
}

// Labels are what is read of the selector of labels.
func (s *Selectors) Labels() (labels.Selector, error) {
	s.readLabels.Do(func() { s.labels, s.badLabels = labels.Parse(s.label) })
	return s.labels, s.badLabels
}

// Fields are what is read of the selector of fields, by the names that it has.
func (s *Selectors) Fields() (fields.Selector, error) {
	s.readFields.Do(func() { s.fields, s.badFields = fields.ParseSelector(s.field) })
	return s.fields, s.badFields
}

// Selectors are those texts as they are read, once where they are the operation's own.
func (o *Operation) Selectors(label, field string) *Selectors {
	if s := o.selectors; s != nil && s.label == label && s.field == field {
		return s
	}
	return &Selectors{label: label, field: field}
}

// OwnSelectors are the operation's.
func (o *Operation) OwnSelectors() *Selectors { return o.Selectors(o.LabelSelector, o.FieldSelector) }
