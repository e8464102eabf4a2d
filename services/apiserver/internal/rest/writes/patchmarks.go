package writes

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/registry"
)

// mergeMarks applies a merge patch that changes only the labels and annotations of a document. Such
// patches are the most frequent ones, and the rest of the document need not be encoded and decoded.
// It returns false for every other patch.
func (p *Patch) mergeMarks(old registry.Object) (registry.Object, bool) {
	u, ok := old.(*unstructured.Unstructured)
	if !ok || p.typ != types.MergePatchType || len(p.unknown) > 0 || len(p.tree) != 1 {
		return nil, false
	}
	patch, ok := p.tree["metadata"].(map[string]any)
	if !ok {
		return nil, false
	}
	merged := map[string]map[string]any{}
	meta, ok := u.Object["metadata"].(map[string]any)
	for name, marks := range patch {
		of, is := marks.(map[string]any)
		if !ok || !is || name != "labels" && name != "annotations" {
			return nil, false
		}
		if merged[name], is = mergedMarks(meta[name], of); !is {
			return nil, false
		}
	}
	obj := u.DeepCopy()
	meta = obj.Object["metadata"].(map[string]any)
	for name, marks := range merged {
		if len(marks) == 0 {
			delete(meta, name)
			continue
		}
		meta[name] = marks
	}
	return obj, true
}

// unconverted reports whether a document is stored in the version of the request. Then it already
// has the defaults of that version. A converted document gets them on the general path.
func (l *live) unconverted(r *Request) bool {
	if r.Kind.Document == nil {
		return false
	}
	version := ""
	_ = jsontext.Members(l.kv.Value, func(name, value []byte) bool {
		if string(name) != "apiVersion" {
			return true
		}
		version, _ = jsontext.Text(value)
		return false
	})
	return version == r.Kind.GroupVersion().String()
}

// mergedMarks returns the map after the patch. It returns false unless all values are strings.
func mergedMarks(have any, patch map[string]any) (map[string]any, bool) {
	was, ok := have.(map[string]any)
	if !ok && have != nil {
		return nil, false
	}
	out := make(map[string]any, len(was)+len(patch))
	for name, v := range was {
		out[name] = v
	}
	for name, v := range patch {
		switch v.(type) {
		case nil:
			delete(out, name)
		case string:
			out[name] = v
		default:
			return nil, false
		}
	}
	return out, true
}
