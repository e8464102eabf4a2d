package pods

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
	"binnacle/services/apiserver/internal/rest/handlers"
)

// serviceTarget returns the URL of an endpoint of a service, which is named as name, name:port or
// scheme:name:port, where port is the name or number of one of its ports. As in Kubernetes, the
// Endpoints object alone decides unless port is a number.
func (s *service) serviceTarget(call *handlers.Call) (*url.URL, kubeletproxy.TargetKind, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(call.Info.Name)
	if !ok {
		return nil, 0, apierrors.NewBadRequest(fmt.Sprintf("invalid service request %q", call.Info.Name))
	}
	if number, err := strconv.ParseInt(port, 10, 64); err == nil {
		port, err = portName(call, name, number)
		if err != nil {
			return nil, 0, err
		}
	}
	endpoints, err := handlers.GetCurrent[*corev1.Endpoints](call, corev1.SchemeGroupVersion.WithResource("endpoints"), name)
	if apierrors.IsNotFound(err) {
		return nil, 0, apierrors.NewNotFound(call.GroupResource(), name)
	}
	if err != nil {
		return nil, 0, err
	}
	address, found := s.pickEndpoint(call, endpoints, port)
	if !found {
		return nil, 0, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
	}
	return &url.URL{Scheme: schemeOrHTTP(scheme), Host: address}, kubeletproxy.Target, nil
}

// portName returns the name of the port that a service has with a number.
func portName(call *handlers.Call, service string, number int64) (string, error) {
	serviceObject, err := handlers.GetCurrent[*corev1.Service](call, corev1.SchemeGroupVersion.WithResource("services"), service)
	if err != nil {
		return "", err
	}
	for _, port := range serviceObject.Spec.Ports {
		if int64(port.Port) == number {
			return port.Name, nil
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", number, service))
}

// pickEndpoint returns a random ready endpoint that has the port.
func (s *service) pickEndpoint(call *handlers.Call, endpoints *corev1.Endpoints, port string) (address string, found bool) {
	for _, subsetIndex := range rand.Perm(len(endpoints.Subsets)) {
		subset := &endpoints.Subsets[subsetIndex]
		portIndex := slices.IndexFunc(subset.Ports, func(s corev1.EndpointPort) bool { return s.Name == port })
		if portIndex < 0 {
			continue
		}
		for _, addressIndex := range rand.Perm(len(subset.Addresses)) {
			address := &subset.Addresses[addressIndex]
			if s.isPod(call, address) {
				return net.JoinHostPort(address.IP, strconv.Itoa(int(subset.Ports[portIndex].Port))), true
			}
		}
	}
	return "", false
}

// isPod reports whether an endpoint is the address of a pod. Otherwise a user with write access to
// endpoints could direct the server's requests to any address.
func (s *service) isPod(call *handlers.Call, address *corev1.EndpointAddress) bool {
	ref := address.TargetRef
	if ref == nil || ref.Namespace != call.Info.Namespace || ref.Kind != "" && ref.Kind != "Pod" {
		return false
	}
	pod, err := handlers.GetCurrent[*corev1.Pod](call, corev1.SchemeGroupVersion.WithResource("pods"), ref.Name)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == address.IP })
}
