package endpoints

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

	"binnacle/services/apiserver/internal/upstream"
)

// proxy answers requests of any method to a pod, a service or a node.
func (a *API) proxy(c *call) error {
	var options runtime.Object
	var locate func(*call) (*url.URL, upstream.To, error)
	path := c.proxiedPath()
	switch c.Resource {
	case "pods":
		options, locate = &corev1.PodProxyOptions{Path: path}, a.podTarget
	case "services":
		options, locate = &corev1.ServiceProxyOptions{Path: path}, a.serviceTarget
	default:
		options, locate = &corev1.NodeProxyOptions{Path: path}, a.nodeTarget
	}
	if err := a.admitConnect(c, options); err != nil {
		return err
	}
	at, to, err := locate(c)
	if err != nil {
		return err
	}
	at.Path = utilnet.JoinPreservingTrailingSlash(at.Path, path)
	a.Upstream.Proxy(c.w, c.r, to, at, upstreamErrors{a})
	return nil
}

// proxiedPath is what follows the sub-resource in the request's path.
func (c *call) proxiedPath() string {
	p := strings.Join(c.op.Beyond, "/")
	if p != "" && !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	if strings.HasSuffix(c.op.Path, "/") && !strings.HasSuffix(p, "/") {
		p += "/"
	}
	return p
}

// podTarget is the port of a pod that is named as name, name:port or
// scheme:name:port; without a port the first one that a container declares.
func (a *API) podTarget(c *call) (*url.URL, upstream.To, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(c.op.Name)
	if !ok {
		return nil, 0, apierrors.NewBadRequest(fmt.Sprintf("invalid pod request %q", c.op.Name))
	}
	pod, err := newest[*corev1.Pod](a, c, "pods", name)
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
	if !upstream.Allowed(net.ParseIP(ip)) {
		return nil, 0, apierrors.NewBadRequest(upstream.ErrAddressNotAllowed.Error())
	}
	at := &url.URL{Scheme: orHTTP(scheme), Host: ip}
	switch {
	case port != "":
		at.Host = net.JoinHostPort(ip, port)
	case strings.Contains(ip, ":"):
		at.Host = "[" + ip + "]"
	}
	return at, upstream.Target, nil
}

func declaredPort(p *corev1.Pod) string {
	for i := range p.Spec.Containers {
		if ports := p.Spec.Containers[i].Ports; len(ports) > 0 {
			return strconv.Itoa(int(ports[0].ContainerPort))
		}
	}
	return ""
}

func orHTTP(scheme string) string {
	if scheme == "" {
		return "http"
	}
	return scheme
}

// nodeTarget is a node's kubelet, or another port of the node.
func (a *API) nodeTarget(c *call) (*url.URL, upstream.To, error) {
	scheme, name, wanted, ok := utilnet.SplitSchemeNamePort(c.op.Name)
	if !ok {
		return nil, 0, apierrors.NewBadRequest(fmt.Sprintf("invalid node request %q", c.op.Name))
	}
	node, err := newest[*corev1.Node](a, c, "nodes", name)
	if err != nil {
		return nil, 0, err
	}
	host, port, err := a.Upstream.Location(node)
	if err != nil {
		return nil, 0, err
	}
	if wanted == "" || wanted == port {
		return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, port)}, upstream.Kubelet, nil
	}
	if err := upstream.CheckHost(c.ctx(), host); err != nil {
		return nil, 0, apierrors.NewBadRequest(err.Error())
	}
	return &url.URL{Scheme: orHTTP(scheme), Host: net.JoinHostPort(host, wanted)}, upstream.Target, nil
}
