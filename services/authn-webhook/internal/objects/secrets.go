package objects

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"binnacle/libs/kubeclient"
)

// secretsResource is the resource of secrets.
const secretsResource = "secrets"

// secretReader requests single secrets of all namespaces.
type secretReader struct{ rest rest.Interface }

// newSecretReader returns a client for single secrets.
func newSecretReader(c *rest.Config) (*secretReader, error) {
	client, err := kubeclient.NewClient(c, corev1.AddToScheme)
	if err != nil {
		return nil, err
	}
	core, err := client.Group(corev1.SchemeGroupVersion)
	return &secretReader{core}, err
}

// get reads a secret from the API server.
func (c *secretReader) get(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	found := &corev1.Secret{}
	err := c.rest.Get().Namespace(namespace).Resource(secretsResource).Name(name).Do(ctx).Into(found)
	if err != nil {
		return nil, err
	}
	return found, nil
}
