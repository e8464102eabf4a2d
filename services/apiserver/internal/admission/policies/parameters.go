package policies

import (
	"context"
	"errors"
	"fmt"
	"maps"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/admission/views"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/request"
)

// Parameters looks up the objects to which bindings refer.
type Parameters struct {
	// Kind returns a served kind, or nil.
	Kind func(schema.GroupVersionKind) *apiset.Resource
	// WaitForWrites blocks until the cache of a kind contains all writes that this server has
	// acknowledged.
	WaitForWrites func(context.Context, *apiset.Resource) error

	trees *trees
}

// NewParameters returns a Parameters.
func NewParameters(kind func(schema.GroupVersionKind) *apiset.Resource, waitForWrites func(context.Context, *apiset.Resource) error) (*Parameters, error) {
	cached, err := newTrees()
	return &Parameters{Kind: kind, WaitForWrites: waitForWrites, trees: cached}, err
}

// reference is the paramRef of a binding.
type reference struct {
	*admissionv1.ParamRef
	selector labels.Selector
	err      error // of parsing the selector
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

// resource returns the kind of a policy's parameters, or nil if it has none.
func (p *Parameters) resource(k *admissionv1.ParamKind) (*apiset.Resource, error) {
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

// parameter is an object to which a binding refers, or none. It is decoded when it is evaluated,
// because many decoded objects may take much memory.
type parameter struct {
	source *Parameters // nil for none
	kind   *apiset.Resource
	entry  *objects.Entry
	keep   bool // the decoded object may be cached
}

// noParameters returns the single empty parameter of a policy without parameters, which is
// evaluated once.
func noParameters() []parameter { return []parameter{{}} }

// name identifies a parameter.
func (p *parameter) name() string {
	if p.source == nil {
		return "/"
	}
	return p.entry.Namespace() + "/" + p.entry.Name()
}

// tree returns the object as expressions see it. Callers must not change it. It is nil for none.
func (p *parameter) tree(ctx context.Context) (map[string]any, error) {
	if p.source == nil {
		return nil, nil
	}
	return p.source.tree(ctx, p.kind, p.entry, p.keep)
}

// forBinding returns the parameters of a binding for a request in a namespace.
func (p *Parameters) forBinding(ctx context.Context, kind *apiset.Resource, ref *reference, namespace string) ([]parameter, error) {
	if kind == nil || ref == nil {
		return noParameters(), nil
	}
	if err := p.WaitForWrites(ctx, kind); err != nil {
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

// find returns the parameter that a reference names, or those that it selects, below a key prefix.
func (p *Parameters) find(ctx context.Context, kind *apiset.Resource, ref *reference, prefix string) (found []parameter, err error) {
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
		return []parameter{{p, kind, e, true}}, nil
	case ref.Selector == nil:
		return nil, errors.New("one of name or selector must be provided")
	}
	return p.selectedBy(ctx, kind, ref.selector, prefix)
}

// selectedBy returns the parameters that a selector selects. If they are large together, it
// acquires the limiter for large requests.
func (p *Parameters) selectedBy(ctx context.Context, kind *apiset.Resource, selector labels.Selector, prefix string) (found []parameter, err error) {
	size := 0
	kind.Store.Snapshot().Ascend(prefix, "", func(e *objects.Entry) bool {
		if err = ctx.Err(); err != nil { // the request has ended
			return false
		}
		if err = e.Corrupt(); err != nil { // the entry may be one that is selected
			err = fmt.Errorf("read %s %q: %w", kind.GroupResource(), e.Name(), err)
			return false
		}
		if selector.Matches(labels.Set(maps.Collect(e.Labels().All()))) {
			found = append(found, parameter{p, kind, e, false})
			size += e.Size()
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	if err := request.Estimate(ctx, size); err != nil && len(found) > 1 {
		return nil, err
	}
	for i := range found {
		found[i].keep = size <= maxSelectedSize
	}
	return found, nil
}

// requestEnded reports whether an error means that the request has ended or is throttled. Such an
// error is not a failure of the policy.
func requestEnded(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || apierrors.IsTooManyRequests(err))
}

// tree returns an object as expressions see it. Callers must not change it. If keep is set, the
// decoded object is cached.
func (p *Parameters) tree(ctx context.Context, kind *apiset.Resource, e *objects.Entry, keep bool) (map[string]any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	key := treeKey{e.Key(), kind.GVK()}
	if t, ok := p.trees.get(key, e.ID()); ok {
		return t, nil
	}
	size := e.Size()
	_ = request.Estimate(ctx, size) // continue after a rejection, because an error would count as a failure of the policy
	obj, err := kind.Coder.DecodeItem(ctx, codec.Item{Stored: e.Stored(), Revision: e.Revision})
	if err != nil {
		return nil, fmt.Errorf("read %s %q: %w", kind.GroupResource(), e.Name(), err)
	}
	t, err := views.Tree(obj, kind.GVK())
	if err == nil && keep {
		p.trees.add(key, cachedTree{t, e.ID(), size}, func(key string) bool { _, ok := kind.Store.Get(key); return ok })
	}
	return t, err
}
