package pods

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
	"binnacle/services/apiserver/internal/rest/handlers"
)

// serveProxy serves requests of any method to a pod, a service or a node.
func (s *service) serveProxy(call *handlers.Call) error {
	var options runtime.Object
	var path *string // admission may change it
	locate := s.nodeTarget
	switch call.Resource {
	case "pods":
		o := &corev1.PodProxyOptions{Path: proxiedPath(call)}
		options = o
		path = &o.Path
		locate = s.podTarget
	case "services":
		o := &corev1.ServiceProxyOptions{Path: proxiedPath(call)}
		options = o
		path = &o.Path
		locate = s.serviceTarget
	default:
		o := &corev1.NodeProxyOptions{Path: proxiedPath(call)}
		options = o
		path = &o.Path
	}
	if err := call.Admit(call.ConnectRequest(options)); err != nil {
		return err
	}
	target, kind, err := locate(call)
	if err != nil {
		return err
	}
	target.Path = utilnet.JoinPreservingTrailingSlash(target.Path, *path)
	if target.Path != "" && !strings.HasPrefix(target.Path, "/") {
		target.Path = "/" + target.Path
	}
	s.Upstream.Proxy(call.W, call.R, kind, target, errorResponder{call})
	return nil
}

// proxiedPath returns the part of the request's path after the subresource.
func proxiedPath(call *handlers.Call) string {
	path := strings.Join(call.Info.Subpath, "/")
	if path != "" && !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	if strings.HasSuffix(call.Info.Path, "/") && !strings.HasSuffix(path, "/") {
		path += "/"
	}
	return path
}

// podTarget returns the URL of a port of a pod, which is named as name, name:port or
// scheme:name:port. Without a port it is the first one that a container declares.
func (s *service) podTarget(call *handlers.Call) (*url.URL, kubeletproxy.TargetKind, error) {
	scheme, name, port, ok := splitTarget(call.Info.Name)
	if !ok {
		return nil, 0, apierrors.NewBadRequest(fmt.Sprintf("invalid pod request %q", call.Info.Name))
	}
	pod, err := handlers.GetCurrent[*corev1.Pod](call, corev1.SchemeGroupVersion.WithResource("pods"), name)
	if err != nil {
		return nil, 0, err
	}
	if port == "" {
		port = declaredPort(pod)
	}
	ip := pod.Status.PodIP
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	if !kubeletproxy.Allowed(net.ParseIP(ip)) {
		return nil, 0, apierrors.NewBadRequest(kubeletproxy.ErrAddressNotAllowed.Error())
	}
	target := &url.URL{Scheme: schemeOrHTTP(scheme), Host: ip}
	switch {
	case port != "":
		target.Host = net.JoinHostPort(ip, port)
	case strings.Contains(ip, ":"):
		target.Host = "[" + ip + "]"
	}
	return target, kubeletproxy.Target, nil
}

// splitTarget parses name, name:port or scheme:name:port, where port is a number.
func splitTarget(s string) (scheme, name, port string, ok bool) {
	scheme, name, port, ok = utilnet.SplitSchemeNamePort(s)
	return scheme, name, port, ok && strings.Trim(port, "0123456789") == ""
}

// declaredPort returns the first port that a container of a pod declares, or "".
func declaredPort(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if ports := pod.Spec.Containers[i].Ports; len(ports) > 0 {
			return strconv.Itoa(int(ports[0].ContainerPort))
		}
	}
	return ""
}

// schemeOrHTTP returns the scheme, or http if it is empty.
func schemeOrHTTP(scheme string) string {
	if scheme == "" {
		return "http"
	}
	return scheme
}

// nodeTarget returns the URL of a node's kubelet, or of another port of the node.
func (s *service) nodeTarget(call *handlers.Call) (*url.URL, kubeletproxy.TargetKind, error) {
	scheme, name, requestedPort, ok := splitTarget(call.Info.Name)
	if !ok {
		return nil, 0, apierrors.NewBadRequest(fmt.Sprintf("invalid node request %q", call.Info.Name))
	}
	node, err := handlers.GetCurrent[*corev1.Node](call, corev1.SchemeGroupVersion.WithResource("nodes"), name)
	if err != nil {
		return nil, 0, err
	}
	host, port, err := s.Upstream.Location(node)
	if err != nil {
		return nil, 0, err
	}
	if requestedPort == "" || requestedPort == port {
		return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, port)}, kubeletproxy.Kubelet, nil
	}
	if err := kubeletproxy.CheckHost(call.Context(), host); err != nil {
		return nil, 0, apierrors.NewBadRequest(err.Error())
	}
	return &url.URL{Scheme: schemeOrHTTP(scheme), Host: net.JoinHostPort(host, requestedPort)}, kubeletproxy.Target, nil
}
