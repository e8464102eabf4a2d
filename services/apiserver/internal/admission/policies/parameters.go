package policies

import (
	"context"
	"errors"
	"fmt"
	"maps"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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

// Parameters looks up the objects to which bindings refer (paramRef) and caches them decoded.
type Parameters struct {
	// Kind returns the resource of a kind, or nil if the kind is not served.
	Kind func(schema.GroupVersionKind) *apiset.Resource
	// WaitForWrites blocks until the cache of a kind contains all writes that this server has
	// acknowledged.
	WaitForWrites func(context.Context, *apiset.Resource) error

	trees *parameterCache
}

// NewParameters returns a Parameters with an empty cache. See the fields of Parameters.
func NewParameters(
	kind func(schema.GroupVersionKind) *apiset.Resource,
	waitForWrites func(context.Context, *apiset.Resource) error,
) (*Parameters, error) {
	cached, err := newParameterCache()
	return &Parameters{Kind: kind, WaitForWrites: waitForWrites, trees: cached}, err
}

// reference is the paramRef of a binding with its compiled selector, which is nil if the paramRef
// has none.
type reference struct {
	*admissionregistrationv1.ParamRef
	selector labels.Selector
	err      error // of parsing the selector
}

func referenceOf(ref *admissionregistrationv1.ParamRef) *reference {
	if ref == nil {
		return nil
	}
	out := &reference{ParamRef: ref}
	if ref.Selector != nil {
		out.selector, out.err = metav1.LabelSelectorAsSelector(ref.Selector)
	}
	return out
}

// resourceFor returns the resource of a policy's parameter kind, or nil if paramKind is
// nil.
func (p *Parameters) resourceFor(paramKind *admissionregistrationv1.ParamKind) (*apiset.Resource, error) {
	if paramKind == nil {
		return nil, nil
	}
	gv, err := schema.ParseGroupVersion(paramKind.APIVersion)
	if err == nil {
		if r := p.Kind(gv.WithKind(paramKind.Kind)); r != nil && r.Store != nil {
			return r, nil
		}
	}
	return nil, fmt.Errorf("failed to find resource referenced by paramKind: '%s, Kind=%s'", paramKind.APIVersion, paramKind.Kind)
}

// parameter is an object to which a binding refers. The zero value stands for no object. The object
// is decoded when it is evaluated, because many decoded objects may take much memory.
type parameter struct {
	source    *Parameters
	kind      *apiset.Resource
	entry     *objects.Entry
	cacheable bool // cache the decoded object
}

// name returns "namespace/name" of the object, or "/" for no object.
func (p *parameter) name() string {
	if p.source == nil {
		return "/"
	}
	return p.entry.Namespace() + "/" + p.entry.Name()
}

// tree returns the object as expressions see it, or nil for no object. Callers must not change it.
func (p *parameter) tree(ctx context.Context) (map[string]any, error) {
	if p.source == nil {
		return nil, nil
	}
	return p.source.treeOf(ctx, p.kind, p.entry, p.cacheable)
}

// forBinding returns the parameters of a binding for a request. kind is the policy's parameter
// kind, or nil if the policy has no parameters. ref is the binding's paramRef. namespace is the
// namespace of the request, which applies if ref names none.
func (p *Parameters) forBinding(
	ctx context.Context,
	kind *apiset.Resource,
	ref *reference,
	namespace string,
) ([]parameter, error) {
	if kind == nil || ref == nil {
		return []parameter{{}}, nil // evaluated once
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
	found, err := p.resolve(ctx, kind, ref, prefix)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 && ref.ParameterNotFoundAction != nil && *ref.ParameterNotFoundAction == admissionregistrationv1.DenyAction {
		return nil, errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
	}
	return found, nil
}

// resolve returns the parameters that a reference names or selects. prefix is the key prefix of the
// objects in the store. It returns none if there is no object of the name.
func (p *Parameters) resolve(
	ctx context.Context,
	kind *apiset.Resource,
	ref *reference,
	prefix string,
) (found []parameter, err error) {
	switch {
	case ref.Name != "" && ref.Selector != nil:
		return nil, errors.New("paramRef.name and paramRef.selector are mutually exclusive")
	case ref.err != nil:
		return nil, ref.err
	case ref.Name != "":
		entry, ok := kind.Store.Get(prefix + ref.Name)
		if !ok {
			p.trees.drop(parameterKey{object: prefix + ref.Name, kind: kind.GVK()})
			return nil, nil
		}
		return []parameter{{source: p, kind: kind, entry: entry, cacheable: true}}, nil
	case ref.Selector == nil:
		return nil, errors.New("one of name or selector must be provided")
	}
	return p.selectAll(ctx, kind, ref.selector, prefix)
}

// selectAll returns the parameters that a selector selects below a key prefix. If their total size
// is large, it acquires the limiter for large requests.
func (p *Parameters) selectAll(
	ctx context.Context,
	kind *apiset.Resource,
	selector labels.Selector,
	prefix string,
) (found []parameter, err error) {
	size := 0
	kind.Store.Snapshot().Ascend(prefix, "", func(entry *objects.Entry) bool {
		if err = ctx.Err(); err != nil { // the request has ended
			return false
		}
		if err = entry.Corrupt(); err != nil { // its labels are unknown, so the selector may select it
			err = fmt.Errorf("read %s %q: %w", kind.GroupResource(), entry.Name(), err)
			return false
		}
		if selector.Matches(labels.Set(maps.Collect(entry.Labels().All()))) {
			found = append(found, parameter{source: p, kind: kind, entry: entry})
			size += entry.Size()
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
		found[i].cacheable = size <= maxSelectionBytes
	}
	return found, nil
}

// requestEnded reports whether an error means that the request has ended or is throttled. Such an
// error is not a failure of the policy.
func requestEnded(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || apierrors.IsTooManyRequests(err))
}

// treeOf returns the object of an entry as expressions see it, from the cache if possible. Callers
// must not change it. If cacheable is set, treeOf caches the decoded object.
func (p *Parameters) treeOf(ctx context.Context, kind *apiset.Resource, entry *objects.Entry, cacheable bool) (map[string]any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	key := parameterKey{object: entry.Key(), kind: kind.GVK()}
	if t, ok := p.trees.get(key, entry.ID()); ok {
		return t, nil
	}
	size := entry.Size()
	// A rejection by the limiter is ignored, because an error would count as a failure of the
	// policy.
	_ = request.Estimate(ctx, size)
	obj, err := kind.Coder.DecodeItem(ctx, codec.Item{Stored: entry.Stored(), Revision: entry.Revision})
	if err != nil {
		return nil, fmt.Errorf("read %s %q: %w", kind.GroupResource(), entry.Name(), err)
	}
	t, err := views.Tree(obj, kind.GVK())
	if err == nil && cacheable {
		exists := func(object string) bool { _, ok := kind.Store.Get(object); return ok }
		p.trees.add(key, cachedParameter{content: t, id: entry.ID(), size: size}, exists)
	}
	return t, err
}
