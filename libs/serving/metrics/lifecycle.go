package metrics

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"binnacle/libs/version"
)

// Lifecycle selects the metrics of a process to export, and the label values to export.
type Lifecycle struct {
	// Disabled lists metrics that are not exported.
	Disabled []string
	// ShowHiddenFor is the version whose hidden metrics are exported.
	ShowHiddenFor string
	// AllowLabels maps "metric,label" to the exported values, separated by commas. It takes
	// precedence over the file AllowLabelsManifest.
	AllowLabels         map[string]string
	AllowLabelsManifest string
}

// AddFlags adds the metrics flags of Kubernetes components.
func (l *Lifecycle) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&l.ShowHiddenFor, "show-hidden-metrics-for-version", "",
		"The previous version as <major>.<minor>, to export metrics that were hidden since then. Only the previous minor version is allowed. It shows which metrics the next release will remove.")
	flags.StringSliceVar(&l.Disabled, "disabled-metrics", nil,
		"Full names of metrics that are not exported, even if --show-hidden-metrics-for-version would export them.")
	flags.StringToStringVar(&l.AllowLabels, "allow-metric-labels", nil,
		"The values that labels of metrics may have, as <metric>,<label>=<value>,<value>...; others are shown as \"unexpected\". For several labels the flag is given again, or each of them is put in double quotes: \"metric1,label1=v1,v2\",\"metric2,label2=v1\".")
	flags.StringVar(&l.AllowLabelsManifest, "allow-metric-labels-manifest", "",
		"YAML file with the map of --allow-metric-labels, which takes precedence if set.")
}

// labelKey matches the keys of AllowLabels.
var labelKey = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*,[a-zA-Z_][a-zA-Z0-9_]*$`)

// Validate checks the flags.
func (l *Lifecycle) Validate() (errs []error) {
	if previous := fmt.Sprintf("%d.%d", currentRelease().major,
		currentRelease().minor-1); l.ShowHiddenFor != "" && l.ShowHiddenFor != previous {
		errs = append(errs, fmt.Errorf("--show-hidden-metrics-for-version must be omitted or have the value '%s'. Only the previous minor version is allowed", previous))
	}
	for key := range l.AllowLabels {
		if !labelKey.MatchString(key) {
			return append(errs, errors.New("--allow-metric-labels must have a list of kv pair with format `metricName,labelName=labelValue, labelValue,...`"))
		}
	}
	return errs
}

// Gatherer returns a gatherer of the selected metrics of from. It adds the metrics about metrics.
func (l *Lifecycle) Gatherer(from prometheus.Gatherer, log *slog.Logger) (prometheus.Gatherer, error) {
	allowed, err := l.allowedValues(log)
	if err != nil {
		return nil, err
	}
	filtered := &filteredGatherer{
		source:        from,
		disabled:      map[string]bool{},
		disabledCount: len(l.Disabled),
		showHidden:    l.ShowHiddenFor != "",
		allowed:       allowed,
		registered:    map[string]metricLifecycle{},
		hidden:        map[string]bool{},
	}
	for _, name := range l.Disabled {
		filtered.disabled[name] = true
	}
	return filtered, nil
}

// allowedValues returns the allowed values by metric and label.
func (l *Lifecycle) allowedValues(log *slog.Logger) (map[string]map[string][]string, error) {
	mapping := l.AllowLabels
	if len(mapping) == 0 && l.AllowLabelsManifest != "" {
		raw, err := os.ReadFile(l.AllowLabelsManifest)
		if err == nil {
			err = yaml.Unmarshal(raw, &mapping)
		}
		if err != nil {
			// As in Kubernetes, the process starts nevertheless.
			log.Error("--allow-metric-labels-manifest cannot be read, so all label values are exported; correct the file and restart", "file", l.AllowLabelsManifest, "error", err)
			return nil, nil
		}
	}
	out := map[string]map[string][]string{}
	for _, key := range slices.Sorted(maps.Keys(mapping)) {
		if !labelKey.MatchString(key) {
			return nil, fmt.Errorf("--allow-metric-labels-manifest: %q is not of the form metric,label", key)
		}
		metric, label, _ := strings.Cut(key, ",")
		if out[metric] == nil {
			out[metric] = map[string][]string{}
		}
		out[metric][label] = strings.Split(mapping[key], ",")
	}
	return out, nil
}

// release is a minor version.
type release struct{ major, minor int }

func currentRelease() release { return parseRelease(version.Kubernetes) }

// parseRelease parses the start of a version. The result is zero for other text.
func parseRelease(s string) (r release) {
	_, _ = fmt.Sscanf(strings.TrimPrefix(s, "v"), "%d.%d", &r.major, &r.minor) // zero on an error
	return r
}

func (r release) before(o release) bool {
	return r.major < o.major || r.major == o.major && r.minor < o.minor
}
