package kubeclient

import (
	"context"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Client sends requests for the types of a scheme. Its requests share connections and a rate limit.
// It is safe for concurrent use.
type Client struct {
	config  *rest.Config
	http    *http.Client
	codecs  serializer.CodecFactory
	options runtime.ParameterCodec
}

// NewClient returns a client for the types that add registers, for example corev1.AddToScheme. A
// service registers only what it reads and writes: the clientset of client-go has every type of
// Kubernetes, which is most of the binary of a small service.
func NewClient(config *rest.Config, add ...func(*runtime.Scheme) error) (*Client, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	for _, f := range add {
		if err := f(scheme); err != nil {
			return nil, fmt.Errorf("client of the API server: %w", err)
		}
	}
	config = rest.CopyConfig(config)
	if config.RateLimiter == nil && config.QPS > 0 {
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, config.Burst)
	}
	if _, _, err := rest.DefaultServerUrlFor(config); err != nil {
		return nil, fmt.Errorf("address of the API server: %w", err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	return &Client{
		config:  config,
		http:    client,
		codecs:  serializer.NewCodecFactory(scheme),
		options: runtime.NewParameterCodec(scheme),
	}, nil
}

// Group returns a client for requests of a group version.
func (c *Client) Group(groupVersion schema.GroupVersion) (rest.Interface, error) {
	config := rest.CopyConfig(c.config)
	config.GroupVersion = &groupVersion
	config.APIPath = "/apis"
	if groupVersion.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = c.codecs.WithoutConversion()
	out, err := rest.RESTClientForConfigAndClient(config, c.http)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", groupVersion, err)
	}
	return out, nil
}

// ParameterCodec encodes options as query parameters.
func (c *Client) ParameterCodec() runtime.ParameterCodec { return c.options }

// Object is a pointer to a type of a scheme.
type Object[T any] interface {
	*T
	runtime.Object
}

// Interface is implemented by Resource, and by the typed clients of client-go, whose fakes serve
// in tests. P is a pointer to the type of an object and PL to that of their list.
type Interface[P, PL runtime.Object] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (P, error)
	List(ctx context.Context, o metav1.ListOptions) (PL, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
	Create(ctx context.Context, obj P, o metav1.CreateOptions) (P, error)
	Update(ctx context.Context, obj P, o metav1.UpdateOptions) (P, error)
	Patch(ctx context.Context, name string, t types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (P, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// Namespaced returns the client of a resource in a namespace. An empty namespace stands for all.
type Namespaced[P, PL runtime.Object] func(namespace string) Interface[P, PL]

// Resource sends requests for one resource, with the methods of client-go's typed clients. T is
// the type of its objects and L that of their list.
type Resource[T, L any, P Object[T], PL Object[L]] struct {
	group           rest.Interface
	options         runtime.ParameterCodec
	name, namespace string
}

// NewResource returns a client of a resource in a namespace. An empty namespace stands for all, and
// for resources without namespaces.
func NewResource[T, L any, P Object[T], PL Object[L]](client *Client, resource schema.GroupVersionResource,
	namespace string) (*Resource[T, L, P, PL], error) {
	group, err := client.Group(resource.GroupVersion())
	if err != nil {
		return nil, err
	}
	return &Resource[T, L, P, PL]{group: group, options: client.options, name: resource.Resource, namespace: namespace}, nil
}

// Namespace returns a client of the resource in another namespace. It shares the connections and
// the rate limit.
func (r *Resource[T, L, P, PL]) Namespace(namespace string) *Resource[T, L, P, PL] {
	c := *r
	c.namespace = namespace
	return &c
}

// Namespaced returns Namespace as a function.
func (r *Resource[T, L, P, PL]) Namespaced() Namespaced[P, PL] {
	return func(namespace string) Interface[P, PL] { return r.Namespace(namespace) }
}

// buildRequest adds the resource, the namespace and the options to a request.
func (r *Resource[T, L, P, PL]) buildRequest(request *rest.Request, options runtime.Object) *rest.Request {
	return request.NamespaceIfScoped(r.namespace, r.namespace != "").Resource(r.name).VersionedParams(options, r.options)
}

// doRequest sends a request and returns the object of the response.
func (r *Resource[T, L, P, PL]) doRequest(ctx context.Context, request *rest.Request) (P, error) {
	out := P(new(T))
	if err := request.Do(ctx).Into(out); err != nil {
		return nil, err
	}
	return out, nil
}

// Get returns an object.
func (r *Resource[T, L, P, PL]) Get(ctx context.Context, name string, options metav1.GetOptions) (P, error) {
	return r.doRequest(ctx, r.buildRequest(r.group.Get(), &options).Name(name))
}

// List returns a page of objects.
func (r *Resource[T, L, P, PL]) List(ctx context.Context, o metav1.ListOptions) (PL, error) {
	out := PL(new(L))
	if err := r.buildRequest(r.group.Get(), &o).Timeout(listTimeout(&o)).Do(ctx).Into(out); err != nil {
		return nil, err
	}
	return out, nil
}

// Watch follows the objects.
func (r *Resource[T, L, P, PL]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return r.buildRequest(r.group.Get(), &o).Timeout(listTimeout(&o)).Watch(ctx)
}

// listTimeout returns the timeout of a list or a watch; 0 means none.
func listTimeout(o *metav1.ListOptions) time.Duration {
	if o.TimeoutSeconds == nil {
		return 0
	}
	return time.Duration(*o.TimeoutSeconds) * time.Second
}

// Create creates an object.
func (r *Resource[T, L, P, PL]) Create(ctx context.Context, obj P, o metav1.CreateOptions) (P, error) {
	return r.doRequest(ctx, r.buildRequest(r.group.Post(), &o).Body(obj))
}

// Update replaces an object.
func (r *Resource[T, L, P, PL]) Update(ctx context.Context, obj P, o metav1.UpdateOptions) (P, error) {
	return r.doRequest(ctx, r.buildRequest(r.group.Put(), &o).Name(nameOf(obj)).Body(obj))
}

// UpdateStatus replaces the status of an object.
func (r *Resource[T, L, P, PL]) UpdateStatus(ctx context.Context, obj P, o metav1.UpdateOptions) (P, error) {
	return r.UpdateSubresource(ctx, obj, "status", o)
}

// UpdateSubresource replaces a subresource, which has the type of the object.
func (r *Resource[T, L, P, PL]) UpdateSubresource(ctx context.Context, obj P, subresource string,
	o metav1.UpdateOptions) (P, error) {
	return r.doRequest(ctx, r.buildRequest(r.group.Put(), &o).Name(nameOf(obj)).SubResource(subresource).Body(obj))
}

// Patch patches an object or a subresource.
func (r *Resource[T, L, P, PL]) Patch(ctx context.Context, name string, t types.PatchType, data []byte,
	o metav1.PatchOptions, subresources ...string) (P, error) {
	return r.doRequest(ctx, r.buildRequest(r.group.Patch(t), &o).Name(name).SubResource(subresources...).Body(data))
}

// Delete deletes an object.
func (r *Resource[T, L, P, PL]) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return r.group.Delete().NamespaceIfScoped(r.namespace, r.namespace != "").Resource(r.name).Name(name).Body(&o).Do(ctx).Error()
}

// nameOf returns the name of an object, which has metadata because it is in a resource.
func nameOf(obj any) string {
	if m, ok := obj.(metav1.ObjectMetaAccessor); ok {
		return m.GetObjectMeta().GetName()
	}
	return ""
}
