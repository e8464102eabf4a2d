package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"binnacle/libs/node"
	"binnacle/libs/rbac"
	"binnacle/libs/reflector"
	"binnacle/libs/task"
)

// Config configures a Policy.
type Config struct {
	Client *rest.Config
	// Rules and Nodes select the engines.
	Rules, Nodes bool
	Logger       *slog.Logger
}

// Policy follows the objects and holds the engines.
type Policy struct {
	Engine  *rbac.Engine
	Graph   *node.Graph
	follows []*reflector.Reflector
}

// New returns a policy that is empty before Run.
func New(c Config) (*Policy, error) {
	p := &Policy{Engine: rbac.New(), Graph: node.NewGraph()}
	client, err := kubernetes.NewForConfig(c.Client)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	add := func(resource string, client rest.Interface, into sink) {
		p.follows = append(p.follows, newReflector(resource, false, into, c.Logger, client))
	}
	if c.Rules {
		r := client.RbacV1().RESTClient()
		add("clusterroles", r, &rules{p.Engine, rbac.KindClusterRole})
		add("roles", r, &rules{p.Engine, rbac.KindRole})
		add("clusterrolebindings", r, &rules{p.Engine, rbac.KindClusterRoleBinding})
		add("rolebindings", r, &rules{p.Engine, rbac.KindRoleBinding})
	}
	if c.Nodes {
		add("pods", client.CoreV1().RESTClient(), &nodes{p.Graph, node.Pod})
		add("persistentvolumes", client.CoreV1().RESTClient(), &nodes{p.Graph, node.Volume})
		add("volumeattachments", client.StorageV1().RESTClient(), &nodes{p.Graph, node.Attachment})
		p.follows = append(p.follows, newReflector("resourceslices", true, &nodes{p.Graph, node.Slice}, c.Logger,
			client.ResourceV1beta2().RESTClient(), client.ResourceV1beta1().RESTClient()))
	}
	return p, nil
}

// Run follows the resources until ctx ends, and returns its error.
func (p *Policy) Run(ctx context.Context) error {
	tasks := make([]task.Task, len(p.follows))
	for i, f := range p.follows {
		tasks[i] = task.Task{Name: "follow " + f.Resource, Run: f.Run}
	}
	return task.Run(ctx, tasks...)
}

// Check is a health check. It fails with the resources that are not listed yet.
func (p *Policy) Check(*http.Request) error {
	var errs []error
	for _, f := range p.follows {
		if !f.Synced() {
			errs = append(errs, fmt.Errorf("%s are not listed yet", f.Resource))
		}
	}
	return errors.Join(errs...)
}
