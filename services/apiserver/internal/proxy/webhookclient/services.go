package webhookclient

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Services resolves services of the cluster.
type Services struct {
	// Get returns a service, or a NotFound error.
	Get func(ctx context.Context, namespace, name string) (*corev1.Service, error)
	// LocalAddress is the address of this server as host:port. Resolve returns it for the service
	// kubernetes in the namespace default.
	LocalAddress string
	// Internal, if set, sends requests to this server without a connection. The server handles them
	// as requests of its own user.
	Internal http.RoundTripper
	// Endpoints, if set, returns the endpoints of a service, or a NotFound error. Resolve then
	// returns an endpoint, because cluster IPs are not reachable (--enable-aggregator-routing).
	Endpoints func(ctx context.Context, namespace, name string) (*corev1.Endpoints, error)
}

// Resolve returns host:port for a port of a service: its cluster IP, its external name, or one of
// its endpoints.
func (s *Services) Resolve(ctx context.Context, namespace, name string, port int32) (string, error) {
	if namespace == corev1.NamespaceDefault && name == selfName {
		return s.LocalAddress, nil
	}
	svc, err := s.Get(ctx, namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("service %q not found", name)
	case err != nil:
		return "", err
	case s.Endpoints != nil:
		return s.resolveEndpoint(ctx, svc, port)
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		return net.JoinHostPort(svc.Spec.ExternalName, strconv.Itoa(int(port))), nil
	case svc.Spec.ClusterIP == corev1.ClusterIPNone || svc.Spec.ClusterIP == "":
		return "", fmt.Errorf("cannot route to service with ClusterIP %q", svc.Spec.ClusterIP)
	}
	if _, err := findServicePort(svc, name, port); err != nil {
		return "", err
	}
	return net.JoinHostPort(svc.Spec.ClusterIP, strconv.Itoa(int(port))), nil
}

// resolveEndpoint returns host:port of a random ready endpoint.
func (s *Services) resolveEndpoint(ctx context.Context, svc *corev1.Service, port int32) (string, error) {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return "", fmt.Errorf("unsupported service type %q", svc.Spec.Type)
	}
	desired, err := findServicePort(svc, svc.Name, port)
	if err != nil {
		return "", err
	}
	all, err := s.Endpoints(ctx, svc.Namespace, svc.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", err
	}
	var found []string
	if err == nil {
		for i := range all.Subsets {
			for _, endpointPort := range all.Subsets[i].Ports {
				for j := range all.Subsets[i].Addresses {
					if endpointPort.Name == desired.Name {
						found = append(found, net.JoinHostPort(all.Subsets[i].Addresses[j].IP, strconv.Itoa(int(endpointPort.Port))))
					}
				}
			}
		}
	}
	if len(found) == 0 {
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", svc.Name))
	}
	return found[rand.IntN(len(found))], nil
}

// findServicePort returns the port of a service with a number. name is the service in the error.
func findServicePort(svc *corev1.Service, name string, port int32) (*corev1.ServicePort, error) {
	for i := range svc.Spec.Ports {
		if svc.Spec.Ports[i].Port == port {
			return &svc.Spec.Ports[i], nil
		}
	}
	return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", port, name))
}

// selfName is the name of the service that is the API server itself.
const selfName = "kubernetes"
