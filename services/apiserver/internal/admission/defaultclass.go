package admission

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DefaultClass returns the name of the default class, or "" if no class is marked as default. Of
// several marked classes, the newest is the default. Of equally old ones, it is the first by name.
func DefaultClass[T metav1.Object](all []T, marked func(T) bool) string {
	var found metav1.Object
	for _, c := range all {
		if !marked(c) {
			continue
		}
		if found != nil {
			foundTime, time := found.GetCreationTimestamp(), c.GetCreationTimestamp()
			if time.Before(&foundTime) || time.Equal(&foundTime) && c.GetName() > found.GetName() {
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
