package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// file is a file of a volume and the source that specifies it. The source is empty in a volume with
// one source.
type file struct{ path, source string }

func (f file) String() string {
	if f.source == "" {
		return fmt.Sprintf("%q", f.path)
	}
	return fmt.Sprintf("%q (%s)", f.path, f.source)
}

// addVolumeOverlapWarnings adds warnings for files of a volume that coincide or whose path is a
// parent of another one.
func (w *warner) addVolumeOverlapWarnings() {
	for i := range w.spec.Volumes {
		v := &w.spec.Volumes[i]
		if c := v.ConfigMap; c != nil {
			w.addOverlapWarnings(fmt.Sprintf("volume %q (ConfigMap %q)", v.Name, c.Name), appendFiles(nil, c.Items, ""))
		}
		if s := v.Secret; s != nil {
			w.addOverlapWarnings(fmt.Sprintf("volume %q (Secret %q)", v.Name, s.SecretName), appendFiles(nil, s.Items, ""))
		}
		if d := v.DownwardAPI; d != nil {
			w.addOverlapWarnings(fmt.Sprintf("volume %q (DownwardAPI)", v.Name), appendFieldFiles(nil, d.Items, ""))
		}
		if p := v.Projected; p != nil {
			w.addOverlapWarnings(fmt.Sprintf("volume %q (Projected)", v.Name), w.projectedFiles(v.Name, p.Sources))
		}
	}
}

// projectedFiles returns the files of a projected volume, and adds a warning for an empty source.
func (w *warner) projectedFiles(volume string, sources []corev1.VolumeProjection) (files []file) {
	for i := range sources {
		switch s := &sources[i]; {
		case *s == (corev1.VolumeProjection{}):
			w.warnf("volume %q (Projected) has no sources provided", volume)
		case s.ConfigMap != nil:
			files = appendFiles(files, s.ConfigMap.Items, fmt.Sprintf("ConfigMap %q", s.ConfigMap.Name))
		case s.Secret != nil:
			files = appendFiles(files, s.Secret.Items, fmt.Sprintf("Secret %q", s.Secret.Name))
		case s.DownwardAPI != nil:
			files = appendFieldFiles(files, s.DownwardAPI.Items, "DownwardAPI")
		case s.ServiceAccountToken != nil:
			files = append(files, file{s.ServiceAccountToken.Path, "ServiceAccountToken"})
		case s.ClusterTrustBundle != nil:
			name := s.ClusterTrustBundle.Name
			if name == nil {
				name = s.ClusterTrustBundle.SignerName
			}
			if name != nil {
				files = append(files, file{s.ClusterTrustBundle.Path, fmt.Sprintf("ClusterTrustBundle %q", *name)})
			}
		}
	}
	return files
}

// appendFiles appends the files of a config map or secret.
func appendFiles(files []file, items []corev1.KeyToPath, source string) []file {
	for i := range items {
		files = append(files, file{items[i].Path, source})
	}
	return files
}

// appendFieldFiles appends the files of the downward API.
func appendFieldFiles(files []file, items []corev1.DownwardAPIVolumeFile, source string) []file {
	for i := range items {
		files = append(files, file{items[i].Path, source})
	}
	return files
}

// addOverlapWarnings adds a warning for each file that overlaps with earlier ones.
func (w *warner) addOverlapWarnings(volume string, files []file) {
	if len(files) < 2 {
		return
	}
	for i := range files {
		files[i].path = strings.TrimRight(files[i].path, "/")
	}
	t := sortFiles(files)
	for i := range files {
		for _, j := range t.before(i) {
			w.warnf("%s: overlapping paths: %s with %s", volume, files[i], files[j])
		}
		if w.isFull() {
			return
		}
	}
}

// sortedFiles orders files so that all files in a folder follow the folder, which limits the cost
// to that of sorting.
type sortedFiles struct {
	order, place []int // files by position, position of each file
	above, end   []int // by position: the position of the next folder around it, or -1; the end of its own files
}

// sortFiles sorts files by path and finds, for each, the files below it.
func sortFiles(files []file) *sortedFiles {
	keys, n := make([]string, len(files)), len(files)
	t := &sortedFiles{order: make([]int, n), place: make([]int, n), above: make([]int, n), end: make([]int, n)}
	for i := range files {
		keys[i], t.order[i] = files[i].path+"/", i
	}
	slices.SortStableFunc(t.order, func(a, b int) int { return strings.Compare(keys[a], keys[b]) })
	around := -1
	for position, i := range t.order {
		t.place[i] = position
		for around >= 0 && !strings.HasPrefix(keys[i], keys[t.order[around]]) {
			t.end[around], around = position, t.above[around]
		}
		t.above[position], around = around, position
	}
	for ; around >= 0; around = t.above[around] {
		t.end[around] = n
	}
	return t
}

// before returns the earlier files that a file overlaps with, in order.
func (t *sortedFiles) before(i int) (others []int) {
	add := func(j int) {
		if j < i {
			others = append(others, j)
		}
	}
	position := t.place[i]
	for up := t.above[position]; up >= 0; up = t.above[up] {
		add(t.order[up])
	}
	for in := position + 1; in < t.end[position]; in++ {
		add(t.order[in])
	}
	slices.Sort(others)
	return others
}

// definedPort is the port of a container and its path.
type definedPort struct {
	path *field.Path
	port *corev1.ContainerPort
}

// portKey holds the values that several definitions may share.
type portKey struct {
	container int32
	protocol  corev1.Protocol
	host      int32
	ip        string
}

// definedPorts finds conflicting definitions without comparing every pair. Its lists hold indexes
// of ports in order.
type definedPorts struct {
	all []definedPort
	// indexes by container port; by container and host port; by container port, host port and host
	// address
	same, sameHost, sameIP map[portKey][]int
}

// add records a port under all keys by which a later port may conflict with it.
func (d *definedPorts) add(p definedPort) {
	k, n := portKeyOf(p.port), len(d.all)
	d.all = append(d.all, p)
	d.sameIP[k] = append(d.sameIP[k], n)
	k.ip = ""
	d.sameHost[k] = append(d.sameHost[k], n)
	k.host = 0
	d.same[k] = append(d.same[k], n)
}

// portKeyOf returns the fields of a port that conflicts depend on.
func portKeyOf(p *corev1.ContainerPort) portKey {
	return portKey{p.ContainerPort, p.Protocol, p.HostPort, p.HostIP}
}

// conflictsWith returns the earlier definitions that a port conflicts with.
func (d *definedPorts) conflictsWith(p *corev1.ContainerPort) []int {
	k := portKeyOf(p)
	if p.HostPort == 0 {
		k.ip = ""
		return d.same[k]
	}
	anyHost := k
	anyHost.host = 0
	anyHost.ip = ""
	found := slices.Clone(d.sameHost[anyHost])
	anyIP := k
	anyIP.ip = ""
	if p.HostIP == "" {
		found = append(found, d.sameHost[anyIP]...)
	} else {
		found = append(append(found, d.sameIP[k]...), d.sameIP[anyIP]...)
	}
	slices.Sort(found)
	return found
}

// addPortWarnings adds warnings for ports that are defined twice.
func (w *warner) addPortWarnings() {
	d := definedPorts{same: map[portKey][]int{}, sameHost: map[portKey][]int{}, sameIP: map[portKey][]int{}}
	eachContainer(w.spec, func(list string, i int, c *corev1.Container) {
		for j := range c.Ports {
			if w.isFull() {
				return
			}
			p, path := &c.Ports[j], w.specPath(list).Index(i).Child("ports").Index(j)
			if p.HostIP != "" && p.HostPort == 0 {
				w.warnf("%s: hostIP set without hostPort: %+v", path, struct {
					Name                    string
					HostPort, ContainerPort int32
					Protocol                corev1.Protocol
					HostIP                  string
				}{p.Name, p.HostPort, p.ContainerPort, p.Protocol, p.HostIP})
			}
			for _, n := range d.conflictsWith(p) {
				other := d.all[n]
				switch o := other.port; {
				case p.HostIP == o.HostIP && p.HostPort == o.HostPort:
					w.warnf("%s: duplicate port definition with %s", path, other.path)
				case p.HostPort == 0 || o.HostPort == 0:
					w.warnf("%s: overlapping port definition with %s", path, other.path)
				default:
					w.warnf("%s: dangerously ambiguous port definition with %s", path, other.path)
				}
			}
			d.add(definedPort{path, p})
		}
	})
}
