package build

import (
	"binnacle/libs/serving/health"
)

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
