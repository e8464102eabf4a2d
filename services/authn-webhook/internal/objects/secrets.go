package objects

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const secretsResource = "secrets"

// secretsClient is a client for secrets only. A client for all kinds would enlarge the binary by
// half.
type secretsClient struct{ rest rest.Interface }

func newSecretsClient(c *rest.Config) (*secretsClient, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c = rest.CopyConfig(c)
	c.APIPath, c.GroupVersion = "/api", &corev1.SchemeGroupVersion
	c.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(scheme, serializer.NewCodecFactory(scheme)).WithoutConversion()
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, err
	}
	return &secretsClient{client}, nil
}

func (c *secretsClient) get(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	found := &corev1.Secret{}
	err := c.rest.Get().Namespace(namespace).Resource(secretsResource).Name(name).Do(ctx).Into(found)
	if err != nil {
		return nil, err
	}
	return found, nil
}

// informer follows the secrets in a namespace that match a field selector.
func (c *secretsClient) informer(namespace string, selector fields.Selector) cache.SharedIndexInformer {
	only := cache.NewListWatchFromClient(c.rest, secretsResource, namespace, selector)
	return cache.NewSharedIndexInformer(only, &corev1.Secret{}, 0, cache.Indexers{})
}
