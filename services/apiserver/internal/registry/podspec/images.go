package podspec

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// maxImagePath is the length of the longest name without registry, tag and digest.
const maxImagePath = 255

// latestTag is the one that moves.
const latestTag = "latest"

// imagePattern matches registry, path, tag and digest of an image.
var imagePattern = regexp.MustCompile(`^((?:` + registryPattern + `/)?` + componentPattern + `(?:/` + componentPattern + `)*)` +
	`(?::(\w[\w.-]{0,127}))?` +
	`(@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$`)

const (
	labelPattern     = `(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])`
	registryPattern  = `(?:` + labelPattern + `(?:\.` + labelPattern + `)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?`
	componentPattern = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`
)

var hostPattern = regexp.MustCompile("^" + registryPattern + "$")

// hashPattern matches what is the hash of an image and not a name.
var hashPattern = regexp.MustCompile(`^[a-f0-9]{64}$`)

// fillPullPolicy reads the name of an image only for who does not say when to pull it.
func fillPullPolicy(p *corev1.PullPolicy, image string) {
	if *p == "" {
		*p = pullPolicy(image)
	}
}

// pullPolicy pulls an image again and again that may have changed under its
// name. A name that cannot be read is left for others to refuse.
func pullPolicy(image string) corev1.PullPolicy {
	m := imagePattern.FindStringSubmatch(image)
	if m == nil || len(imagePath(m[1])) > maxImagePath || hashPattern.MatchString(image) {
		return corev1.PullIfNotPresent
	}
	tag, digest := m[2], m[3]
	if digest != "" && !digestPattern.MatchString(digest) {
		return corev1.PullIfNotPresent
	}
	if tag == latestTag || tag == "" && digest == "" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// digestPattern matches the digests that there are.
var digestPattern = regexp.MustCompile(`^@(?:sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128})$`)

// imagePath is a name without its registry, as Docker's has it in full: images of its own have a
// library.
func imagePath(name string) string {
	path, docker := name, true
	if host, rest, ok := strings.Cut(name, "/"); ok && hostPattern.MatchString(host) && (strings.ContainsAny(host, ".:") || host == "localhost" || strings.ToLower(host) != host) {
		path, docker = rest, host == "docker.io" || host == "index.docker.io"
	}
	if docker && !strings.Contains(path, "/") {
		return "library/" + path
	}
	return path
}
