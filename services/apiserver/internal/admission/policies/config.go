package policies

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/admission/views"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/request"
)

// Config holds the dependencies of the validating or the mutating plugin.
type Config struct {
	// Ready reports whether the watch caches of policies and bindings are loaded.
	Ready func() bool
	// Family returns all served versions of a resource. A rule for one version may match requests
	// in another one.
	Family matcher.Family
	// Namespaces provides the labels that namespace selectors match.
	Namespaces matcher.Namespaces
	// Authorizer decides the authorization checks of expressions.
	Authorizer authorizer.Authorizer
	// Namespace looks up a namespace.
	Namespace  func(ctx context.Context, name string) (*corev1.Namespace, error)
	Parameters *Parameters
	// Programs returns the shared programs and the compiler. They are expensive to create, so it is
	// not called before the first policy is compiled.
	Programs func() (*expressions.Programs, *expressions.Compiler, error)
	Codec    *codec.Codec
	// StructEncodings caches how Go structs are encoded. All requests share it.
	StructEncodings *views.StructEncodings
	// Configure merges an apply configuration, the result of a policy's expression, into an object
	// of a kind; see apply.Fields. Only the mutating plugin uses it.
	Configure func(of schema.GroupVersionKind, obj runtime.Object, configuration map[string]any) (map[string]any, error)
	Metrics   *Metrics
	Logger    *slog.Logger
}

// views returns the views of a request's objects in other versions of their kind.
func (c *Config) views(ctx context.Context, r *admission.Request) *views.Views {
	return views.NewViews(ctx, c.Codec, c.StructEncodings, r, func() []*apiset.Resource { return c.Family(r.Resource) })
}

// candidates returns the policies whose rules match a request. It returns none for requests with
// request.State.Startup, which the server sends to itself before it becomes ready, so that no policy
// can prevent the server from starting.
func candidates(
	ctx context.Context,
	config *Config,
	policies *policySet,
	req *admission.Request,
) ([]matcher.Candidate[*boundPolicy], error) {
	if isExempt(req) || request.FromContext(ctx).Startup {
		return nil, nil
	}
	// Ready is called before and after waitForWrites, which may load the policies.
	ready := config.Ready()
	if err := policies.waitForWrites(ctx); err != nil {
		return nil, err
	}
	if !ready && !config.Ready() {
		return nil, req.Forbiddenf("not yet ready to handle request")
	}
	index, err := policies.index()
	if err != nil {
		return nil, req.Forbiddenf("not yet ready to handle request")
	}
	return index.Candidates(req), nil
}

// isExempt reports whether a request bypasses policies. Writes of policies and bindings bypass them,
// so that an invalid policy can be repaired. Reviews bypass them, because they are not stored.
func isExempt(req *admission.Request) bool {
	switch req.Resource.Group {
	case "admissionregistration.k8s.io":
		switch req.Resource.Resource {
		case "validatingadmissionpolicies",
			"validatingadmissionpolicybindings",
			"mutatingadmissionpolicies",
			"mutatingadmissionpolicybindings":
			return true
		}
	case "authentication.k8s.io", "authorization.k8s.io":
		return req.Resource.Virtual
	}
	return false
}

// namespaceOf returns the namespace of a request, or nil if the object is cluster-scoped, such as a
// Namespace.
func (c *Config) namespaceOf(ctx context.Context, req *admission.Request) (*corev1.Namespace, error) {
	if req.Namespace == "" || req.Kind == corev1.SchemeGroupVersion.WithKind("Namespace") {
		return nil, nil
	}
	return c.Namespace(ctx, req.Namespace)
}

// namespaceTree returns a function that returns the variable namespaceObject of expressions, or nil
// if namespace is nil. As in Kubernetes, the value lacks managed fields and owner references.
func namespaceTree(namespace *corev1.Namespace) func() any {
	if namespace == nil {
		return func() any { return nil }
	}
	return func() any {
		exposed := corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{
				Name:                       namespace.Name,
				GenerateName:               namespace.GenerateName,
				Namespace:                  namespace.Namespace,
				UID:                        namespace.UID,
				ResourceVersion:            namespace.ResourceVersion,
				Generation:                 namespace.Generation,
				CreationTimestamp:          namespace.CreationTimestamp,
				DeletionTimestamp:          namespace.DeletionTimestamp,
				DeletionGracePeriodSeconds: namespace.DeletionGracePeriodSeconds,
				Labels:                     namespace.Labels,
				Annotations:                namespace.Annotations,
				Finalizers:                 namespace.Finalizers,
			},
			Spec: namespace.Spec, Status: namespace.Status,
		}
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&exposed)
		if err != nil {
			return nil
		}
		return tree
	}
}
