package request

import "math"

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
