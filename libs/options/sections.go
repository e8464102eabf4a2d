package options

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// Sections is an ordered list of named flag sets. The zero value is ready.
type Sections struct {
	order []string
	sets  map[string]*pflag.FlagSet
}

// Set returns the flag set of a section, which is appended on first use.
func (s *Sections) Set(name string) *pflag.FlagSet {
	if flags, ok := s.sets[name]; ok {
		return flags
	}
	if s.sets == nil {
		s.sets = map[string]*pflag.FlagSet{}
	}
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	flags.SetNormalizeFunc(underscoresToDashes)
	flags.SortFlags = true
	s.sets[name] = flags
	s.order = append(s.order, name)
	return flags
}

// Values returns the names and values of all flags, sorted by name.
func (s *Sections) Values() (out [][2]string) {
	values := pflag.NewFlagSet("", pflag.ContinueOnError)
	values.SortFlags = true
	s.addTo(values)
	values.VisitAll(func(f *pflag.Flag) { out = append(out, [2]string{f.Name, f.Value.String()}) })
	return out
}

// addTo adds the flags of all sections to one set. A duplicate name panics, as in pflag: it is a
// bug in the program.
func (s *Sections) addTo(fs *pflag.FlagSet) {
	for _, name := range s.order {
		fs.AddFlagSet(s.sets[name])
	}
}

func (s *Sections) printUsage(writer io.Writer, columns int) {
	for _, name := range s.order {
		set := s.sets[name]
		if !set.HasAvailableFlags() {
			continue
		}
		fmt.Fprintf(writer, "\n%s flags:\n\n%s", strings.ToUpper(name[:1])+name[1:], set.FlagUsagesWrapped(columns))
	}
}

// underscoresToDashes normalizes flag names, so that --secure_port is the same as --secure-port, as
// in Kubernetes components.
func underscoresToDashes(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
}
