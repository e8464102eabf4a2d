package node_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"binnacle/libs/node"
)

// keepPaths returns the parts of a document at the given paths.
func keepPaths(value any, paths [][]string) any {
	switch value := value.(type) {
	case []any:
		kept := []any{}
		for _, in := range value {
			kept = append(kept, keepPaths(in, paths))
		}
		return kept
	case map[string]any:
		kept := map[string]any{}
		for name, in := range value {
			var below [][]string
			complete := false
			for _, path := range paths {
				if path[0] == name {
					complete = complete || len(path) == 1
					below = append(below, path[1:])
				}
			}
			switch {
			case complete:
				kept[name] = in
			case len(below) > 0:
				kept[name] = keepPaths(in, below)
			}
		}
		return kept
	}
	return value
}

// TestPodPathsCoverAllReferences checks that PodPaths covers all fields that a pod's references
// depend on.
func TestPodPathsCoverAllReferences(t *testing.T) {
	var paths [][]string
	for _, path := range node.PodPaths() {
		paths = append(paths, strings.Split(path, "."))
	}
	for name, change := range map[string]func(*corev1.Pod){
		"pod with all references": addAllReferences,
		"mirror pod": func(path *corev1.Pod) {
			addAllReferences(path)
			path.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		},
	} {
		complete := pod("p", "n1", change)
		data, err := json.Marshal(complete)
		if err != nil {
			t.Fatal(err)
		}
		var doc any
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		if data, err = json.Marshal(keepPaths(doc, paths)); err != nil {
			t.Fatal(err)
		}
		reduced := &corev1.Pod{}
		if err := json.Unmarshal(data, reduced); err != nil {
			t.Fatal(err)
		}
		references, same := node.RefCount(complete, reduced)
		if !same || reduced.Name != complete.Name || reduced.Namespace != complete.Namespace ||
			reduced.Spec.NodeName != complete.Spec.NodeName {
			t.Errorf("%s: pod reduced to the listed fields: got other references, want those of the whole pod", name)
		}
		if mirror := name == "mirror pod"; (references == 0) != mirror {
			t.Errorf("%s: got %d references, want none of a mirror pod only: %t", name, references, mirror)
		}
	}
}
