package requestinfo

import (
	"math"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// MaxRequirements is the maximum number of requirements in the selectors of a request. Each
// requirement is matched against every object and every watch event.
const MaxRequirements = 1000

// TooManySelectorTerms reports whether the selectors exceed MaxRequirements. Such a request is
// rejected without parsing the selectors, before it is authorized.
func (i *Info) TooManySelectorTerms() bool {
	return requirements(MaxRequirements, i.FieldSelector, i.LabelSelector) > MaxRequirements
}

// Requirements counts the requirements of selectors without parsing them.
func Requirements(selectors ...string) (n int) { return requirements(math.MaxInt, selectors...) }

// requirements counts like Requirements, and stops beyond limit.
func requirements(limit int, selectors ...string) (n int) {
	for _, s := range selectors {
		if s == "" {
			continue
		}
		n++
		depth := 0 // inside the values of one label
		for i := 0; i < len(s) && n <= limit; i++ {
			switch s[i] {
			case '\\': // escape in a field value
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

// Selectors holds the selectors of a request and parses each once. Parsing takes 2 µs a value, and
// flow control, authorizers and the handler need the result.
type Selectors struct {
	label, field string

	labelsOnce, fieldsOnce sync.Once
	labels                 labels.Selector
	fields                 fields.Selector
	labelsErr, fieldsErr   error
}

// Labels returns the parsed label selector.
func (s *Selectors) Labels() (labels.Selector, error) {
	s.labelsOnce.Do(func() { s.labels, s.labelsErr = labels.Parse(s.label) })
	return s.labels, s.labelsErr
}

// Fields returns the parsed field selector, with field names as the client sent them.
func (s *Selectors) Fields() (fields.Selector, error) {
	s.fieldsOnce.Do(func() { s.fields, s.fieldsErr = fields.ParseSelector(s.field) })
	return s.fields, s.fieldsErr
}

// Selectors returns the two texts as selectors. It reuses the parsed ones if the texts equal those
// of the operation.
func (i *Info) Selectors(label, field string) *Selectors {
	if s := i.selectors; s != nil && s.label == label && s.field == field {
		return s
	}
	return &Selectors{label: label, field: field}
}

// OwnSelectors returns the selectors of the operation.
func (i *Info) OwnSelectors() *Selectors { return i.Selectors(i.LabelSelector, i.FieldSelector) }
