package node_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"binnacle/libs/node"
)

// keepPaths returns the parts of a document at the given paths.
func keepPaths(v any, paths [][]string) any {
	switch v := v.(type) {
	case []any:
		out := []any{}
		for _, in := range v {
			out = append(out, keepPaths(in, paths))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for name, in := range v {
			var below [][]string
			complete := false
			for _, p := range paths {
				if p[0] == name {
					complete = complete || len(p) == 1
					below = append(below, p[1:])
				}
			}
			switch {
			case complete:
				out[name] = in
			case len(below) > 0:
				out[name] = keepPaths(in, below)
			}
		}
		return out
	}
	return v
}

// TestPodPathsCoverAllReferences checks that PodPaths covers all fields that a pod's references
// depend on.
func TestPodPathsCoverAllReferences(t *testing.T) {
	var paths [][]string
	for _, p := range node.PodPaths() {
		paths = append(paths, strings.Split(p, "."))
	}
	for name, change := range map[string]func(*corev1.Pod){
		"pod with all references": addAllReferences,
		"mirror pod": func(p *corev1.Pod) {
			addAllReferences(p)
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
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
		part := &corev1.Pod{}
		if err := json.Unmarshal(data, part); err != nil {
			t.Fatal(err)
		}
		n, same := node.RefCount(complete, part)
		if !same || part.Name != complete.Name || part.Namespace != complete.Namespace ||
			part.Spec.NodeName != complete.Spec.NodeName {
			t.Errorf("%s: pod reduced to the listed fields: got other references, want those of the whole pod", name)
		}
		if mirror := name == "mirror pod"; (n == 0) != mirror {
			t.Errorf("%s: got %d references, want none of a mirror pod only: %t", name, n, mirror)
		}
	}
}
