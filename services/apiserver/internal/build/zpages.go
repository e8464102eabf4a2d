package build

import (
	"fmt"
	"strings"
	"time"

	"binnacle/libs/version"
	"binnacle/services/apiserver/internal/server"
)

// zpages adds /flagz and /statusz to the mux if their gates are enabled.
func (p *parts) zpages(mux *server.Mux) {
	const name = "kube-apiserver"
	if p.options.Features.Enabled("ComponentFlagz") {
		mux.Flagz = server.Flagz(name, p.options.FlagValues())
	}
	if p.options.Features.Enabled("ComponentStatusz") {
		mux.Statusz = server.Statusz(name, time.Now(), server.Versions{
			Binary:    strings.TrimPrefix(version.Kubernetes, "v"),
			Emulation: fmt.Sprintf("%s.%d", version.Major, p.options.Compatibility.Emulation().Minor),
		})
	}
}
