package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"binnacle/libs/kubeclient"
	"binnacle/libs/node"
	"binnacle/libs/rbac"
	"binnacle/libs/reflector"
	"binnacle/libs/task"
)

// Config configures a Policy.
type Config struct {
	Client *rest.Config
	// Rules follows roles and bindings for the Engine, Nodes follows pods, volumes, attachments and
	// resource slices for the Graph.
	Rules, Nodes bool
	Logger       *slog.Logger
}

// Policy follows the objects and holds the engines.
type Policy struct {
	Engine     *rbac.Engine
	Graph      *node.Graph
	reflectors []*reflector.Reflector
}

// New returns a policy that is empty before Run.
func New(config Config) (*Policy, error) {
	policy := &Policy{Engine: rbac.New(), Graph: node.NewGraph()}
	client, err := kubeclient.NewClient(config.Client, corev1.AddToScheme, rbacv1.AddToScheme,
		resourcev1beta1.AddToScheme, resourcev1beta2.AddToScheme, storagev1.AddToScheme)
	if err != nil {
		return nil, err
	}
	adder := &reflectorAdder{Policy: policy, client: client, log: config.Logger}
	if config.Rules {
		adder.add("clusterroles", &ruleSink{policy.Engine, rbac.KindClusterRole}, rbacv1.SchemeGroupVersion)
		adder.add("roles", &ruleSink{policy.Engine, rbac.KindRole}, rbacv1.SchemeGroupVersion)
		adder.add("clusterrolebindings", &ruleSink{policy.Engine, rbac.KindClusterRoleBinding}, rbacv1.SchemeGroupVersion)
		adder.add("rolebindings", &ruleSink{policy.Engine, rbac.KindRoleBinding}, rbacv1.SchemeGroupVersion)
	}
	if config.Nodes {
		adder.add("pods", &nodeSink{policy.Graph, node.Pod}, corev1.SchemeGroupVersion)
		adder.add("persistentvolumes", &nodeSink{policy.Graph, node.PersistentVolume}, corev1.SchemeGroupVersion)
		adder.add("volumeattachments", &nodeSink{policy.Graph, node.VolumeAttachment}, storagev1.SchemeGroupVersion)
		adder.optional = true // servers without dynamic resource allocation do not serve them
		adder.add("resourceslices", &nodeSink{policy.Graph, node.ResourceSlice}, resourcev1beta2.SchemeGroupVersion,
			resourcev1beta1.SchemeGroupVersion)
	}
	return policy, errors.Join(adder.errs...)
}

// reflectorAdder adds reflectors to a policy.
type reflectorAdder struct {
	*Policy
	client   *kubeclient.Client
	log      *slog.Logger
	optional bool // the server may not serve the resources that are added from now on
	errs     []error
}

// add follows a resource in the first of the versions that the server serves.
func (a *reflectorAdder) add(resource string, into objectSink, versions ...schema.GroupVersion) {
	groups := make([]rest.Interface, len(versions))
	for i, v := range versions {
		var err error
		groups[i], err = a.client.Group(v)
		a.errs = append(a.errs, err)
	}
	f := &listWatch{resource: resource, versions: groups, codec: a.client.ParameterCodec(), optional: a.optional}
	a.reflectors = append(a.reflectors, f.newReflector(into, a.log))
}

// Run follows the resources until ctx ends, and returns its error.
func (p *Policy) Run(ctx context.Context) error {
	tasks := make([]task.Task, len(p.reflectors))
	for i, f := range p.reflectors {
		tasks[i] = task.Task{Name: "follow " + f.Resource, Run: f.Run}
	}
	return task.Run(ctx, tasks...)
}

// Check is a health check. It fails with the resources that are not listed yet.
func (p *Policy) Check(*http.Request) error {
	var errs []error
	for _, f := range p.reflectors {
		if !f.Synced() {
			errs = append(errs, fmt.Errorf("%s are not listed yet", f.Resource))
		}
	}
	return errors.Join(errs...)
}
