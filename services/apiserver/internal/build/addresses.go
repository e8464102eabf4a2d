package build

import (
	"net"
	"strconv"
	"strings"

	"binnacle/libs/serving/health"
)

// boundPort returns the port that the server listens on, also if the configured port is 0.
func (p *parts) boundPort() int {
	if a, ok := p.server.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return p.options.Serving.SecurePort
}

// address returns host:port at which clients reach this server.
func (p *parts) address() string {
	if host := p.options.ExternalHostname; host != "" {
		if _, _, err := net.SplitHostPort(host); err == nil {
			return host
		}
		return net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(p.boundPort()))
	}
	return net.JoinHostPort(p.options.AdvertiseAddress.String(), strconv.Itoa(p.boundPort()))
}

// paths returns the paths that are served in addition to the API.
func (p *parts) paths() []string {
	paths := []string{"/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/version"}
	for _, e := range health.Endpoints() {
		paths = append(paths, "/"+string(e))
		for _, check := range p.health.Names(e) {
			paths = append(paths, "/"+string(e)+"/"+check)
		}
	}
	if p.options.LogFiles {
		paths = append(paths, "/logs")
	}
	if p.options.Features.Enabled("ComponentFlagz") {
		paths = append(paths, "/flagz")
	}
	if p.options.Features.Enabled("ComponentStatusz") {
		paths = append(paths, "/statusz")
	}
	return append(paths, p.issuerPaths()...)
}
