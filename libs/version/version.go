// Package version holds the Kubernetes version that the suite implements and the build information.
// --version, /version, /metrics and the User-Agent of the suite's clients use it.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"

	apiversion "k8s.io/apimachinery/pkg/version"
)

// The Kubernetes version whose API the suite serves.
const (
	Major      = "1"
	Minor      = "33"
	Kubernetes = "v1.33.13"
	// MinorNumber is Minor.
	MinorNumber = 33
	// OldestEmulated is the oldest minor version that a server can emulate.
	OldestEmulated = 31
)

// Set by the linker for releases (-X binnacle/libs/version.release=v1.2.3) from deploy/dist.
var release, commit, date string

// Suite returns binnacle's own version, or "devel" if the build is not a release.
func Suite() string {
	if release == "" {
		return "devel"
	}
	return release
}

// Get returns the build information in the form that Kubernetes clients parse. Fields that the
// build did not record are empty.
func Get() apiversion.Info {
	info := apiversion.Info{
		Major:                 Major,
		Minor:                 Minor,
		EmulationMajor:        Major,
		EmulationMinor:        Minor,
		MinCompatibilityMajor: Major,
		MinCompatibilityMinor: "32",
		GitVersion:            Kubernetes,
		GoVersion:             runtime.Version(),
		Compiler:              runtime.Compiler,
		Platform:              runtime.GOOS + "/" + runtime.GOARCH,
	}
	if commit != "" {
		info.GitCommit = commit
		info.BuildDate = date
		info.GitTreeState = "clean"
		return info
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	for _, buildSetting := range build.Settings {
		switch buildSetting.Key {
		case "vcs.revision":
			info.GitCommit = buildSetting.Value
		case "vcs.time":
			info.BuildDate = buildSetting.Value
		case "vcs.modified":
			info.GitTreeState = "clean"
			if buildSetting.Value == "true" {
				info.GitTreeState = "dirty"
			}
		}
	}
	return info
}

// Emulating returns the version information of a server that emulates a minor version of Kubernetes
// 1.
func Emulating(minor int) apiversion.Info {
	info := Get()
	info.EmulationMinor = strconv.Itoa(minor)
	info.MinCompatibilityMinor = strconv.Itoa(max(minor-1, OldestEmulated))
	return info
}

// UserAgent returns the User-Agent of a component's clients.
func UserAgent(component string) string {
	return fmt.Sprintf("%s/%s (%s/%s) binnacle", component, Kubernetes, runtime.GOOS, runtime.GOARCH)
}
