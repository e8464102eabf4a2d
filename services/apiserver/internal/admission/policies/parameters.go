package policies

import (
	"context"
	"errors"
	"fmt"
	"maps"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/admission/views"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/served"
	"binnacle/services/apiserver/internal/watchcache"
)

// Parameters finds the objects that bindings name.
type Parameters struct {
	// Kind finds a kind that is served now; nil when there is none.
	Kind func(schema.GroupVersionKind) *served.Resource
	// Seen waits until the cache of a kind has what this server has acknowledged.
	Seen func(context.Context, *served.Resource) error

	trees *trees
}

// NewParameters looks parameters up.
func NewParameters(kind func(schema.GroupVersionKind) *served.Resource, seen func(context.Context, *served.Resource) error) (*Parameters, error) {
	kept, err := newTrees()
	return &Parameters{Kind: kind, Seen: seen, trees: kept}, err
}

// reference is the paramRef of a binding.
type reference struct {
	*admissionv1.ParamRef
	selector labels.Selector
	err      error // of reading the selector
}

func referenceOf(ref *admissionv1.ParamRef) *reference {
	if ref == nil {
		return nil
	}
	out := &reference{ParamRef: ref}
	if ref.Selector != nil {
		out.selector, out.err = metav1.LabelSelectorAsSelector(ref.Selector)
	}
	return out
}

// resource is the kind of a policy's parameters; nil when it has none.
func (p *Parameters) resource(k *admissionv1.ParamKind) (*served.Resource, error) {
	if k == nil {
		return nil, nil
	}
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	if err == nil {
		if r := p.Kind(gv.WithKind(k.Kind)); r != nil && r.Store != nil {
			return r, nil
		}
	}
	return nil, fmt.Errorf("failed to find resource referenced by paramKind: '%s, Kind=%s'", k.APIVersion, k.Kind)
}

// none is the parameter of those that have none: they are evaluated once.
func none() []map[string]any { return []map[string]any{nil} }

// of returns what a binding names, for a request in a namespace.
func (p *Parameters) of(ctx context.Context, kind *served.Resource, ref *reference, namespace string) ([]map[string]any, error) {
	if kind == nil || ref == nil {
		return none(), nil
	}
	if err := p.Seen(ctx, kind); err != nil {
		return nil, err
	}
	prefix := kind.Prefix
	switch {
	case !kind.Namespaced && ref.Namespace != "":
		return nil, errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	case kind.Namespaced && ref.Namespace != "":
		prefix += ref.Namespace + "/"
	case kind.Namespaced && namespace == "":
		return nil, errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
	case kind.Namespaced:
		prefix += namespace + "/"
	}
	found, err := p.find(ctx, kind, ref, prefix)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 && ref.ParameterNotFoundAction != nil && *ref.ParameterNotFoundAction == admissionv1.DenyAction {
		return nil, errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
	}
	return found, nil
}

func (p *Parameters) find(ctx context.Context, kind *served.Resource, ref *reference, prefix string) (found []map[string]any, err error) {
	switch {
	case ref.Name != "" && ref.Selector != nil:
		return nil, errors.New("paramRef.name and paramRef.selector are mutually exclusive")
	case ref.err != nil:
		return nil, ref.err
	case ref.Name != "":
		e, ok := kind.Store.Get(prefix + ref.Name)
		if !ok {
			p.trees.drop(treeKey{prefix + ref.Name, kind.GVK()})
			return nil, nil
		}
		t, err := p.tree(ctx, kind, e)
		return []map[string]any{t}, err
	case ref.Selector == nil:
		return nil, errors.New("one of name or selector must be provided")
	}
	kind.Store.Snapshot().Ascend(prefix, "", func(e *watchcache.Entry) bool {
		if err = e.Unreadable(); err != nil { // it may be one that is selected
			err = fmt.Errorf("read %s %q: %w", kind.GroupResource(), e.Name(), err)
			return false
		}
		if !ref.selector.Matches(labels.Set(maps.Collect(e.Labels().All()))) {
			return true
		}
		var t map[string]any
		if t, err = p.tree(ctx, kind, e); err == nil {
			found = append(found, t)
		}
		return err == nil
	})
	return found, err
}

// tree is an object for expressions, which do not change it.
func (p *Parameters) tree(ctx context.Context, kind *served.Resource, e *watchcache.Entry) (map[string]any, error) {
	key := treeKey{e.Key(), kind.GVK()}
	if t, ok := p.trees.get(key, e.ID()); ok {
		return t, nil
	}
	size := e.Size()
	if size >= request.LargeBody {
		request.Weigh(ctx, size) // or without a turn: a refusal would be taken for the policy's
	}
	obj, err := kind.Coder.DecodeStored(e.Stored(), e.Revision)
	if err != nil {
		return nil, fmt.Errorf("read %s %q: %w", kind.GroupResource(), e.Name(), err)
	}
	t, err := views.Tree(obj, kind.GVK())
	if err == nil {
		p.trees.add(key, keptTree{t, e.ID(), size}, func(key string) bool { _, ok := kind.Store.Get(key); return ok })
	}
	return t, err
}
