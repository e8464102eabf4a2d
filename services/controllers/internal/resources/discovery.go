package resources

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"binnacle/libs/api"
	"binnacle/libs/kubeclient"
)

const (
	// acceptHeader is the media type of aggregated discovery: one response holds all groups with
	// their resources.
	acceptHeader = api.MediaJSON + ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	// discoveryTimeout bounds one request.
	discoveryTimeout = 32 * time.Second
)

// Discovery returns the groups that an API server serves, in its order.
type Discovery interface {
	Groups(ctx context.Context) ([]apidiscoveryv2.APIGroupDiscovery, error)
}

// Client reads the groups of an API server. It implements Discovery.
type Client struct{ client rest.Interface }

// NewClient returns a client with its own rate.
func NewClient(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.Timeout = discoveryTimeout
	client, err := kubeclient.NewClient(config, apidiscoveryv2.AddToScheme)
	if err != nil {
		return nil, err
	}
	group, err := client.Group(apidiscoveryv2.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	return &Client{group}, nil
}

// Groups implements Discovery. The core group is first.
func (c *Client) Groups(ctx context.Context) ([]apidiscoveryv2.APIGroupDiscovery, error) {
	core, err := c.getGroups(ctx, "/api")
	if err != nil && !apierrors.IsNotFound(err) { // a server may have no core group
		return nil, err
	}
	named, err := c.getGroups(ctx, "/apis")
	if err != nil {
		return nil, err
	}
	return slices.Concat(core, named), nil
}

func (c *Client) getGroups(ctx context.Context, path string) ([]apidiscoveryv2.APIGroupDiscovery, error) {
	request := c.client.Get().AbsPath(path).SetHeader("Accept", acceptHeader)
	obj, err := request.Do(ctx).Get()
	if err != nil {
		return nil, fmt.Errorf("discovery at %s: %w", path, err)
	}
	list, ok := obj.(*apidiscoveryv2.APIGroupDiscoveryList)
	if !ok {
		return nil, fmt.Errorf("discovery at %s: the server returned %T, not aggregated discovery", path, obj)
	}
	return list.Items, nil
}

// StaleError reports group versions whose resources the server could not discover.
type StaleError struct{ Versions []schema.GroupVersion }

// Error implements error. Clients see the text in conditions of namespaces.
func (e *StaleError) Error() string {
	var texts []string
	for _, v := range e.Versions {
		texts = append(texts, fmt.Sprintf("%s: stale GroupVersion discovery: %s", v, v))
	}
	slices.Sort(texts)
	return "unable to retrieve the complete list of server APIs: " + strings.Join(texts, ", ")
}
