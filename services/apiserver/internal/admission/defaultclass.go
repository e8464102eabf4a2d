package admission

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DefaultClass returns the name of the default class, or "" if none is marked: the newest of the
// marked ones, or the first by name among equally old ones.
func DefaultClass[T metav1.Object](all []T, marked func(T) bool) string {
	var found metav1.Object
	for _, c := range all {
		if !marked(c) {
			continue
		}
		if found != nil {
			was, is := found.GetCreationTimestamp(), c.GetCreationTimestamp()
			if is.Before(&was) || is.Equal(&was) && c.GetName() > found.GetName() {
				continue
			}
		}
		found = c
	}
	if found == nil {
		return ""
	}
	return found.GetName()
}
