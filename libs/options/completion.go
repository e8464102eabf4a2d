package options

import (
	"strings"

	"github.com/spf13/pflag"
)

// Suggest returns shell completions for the last word of a command line: names of flags and of
// subcommands, each followed by a tab and its description. words are the words between the
// command's name and the last one. Nil leaves the word to the shell, for example for a file as the
// value of a flag.
func (c Command) Suggest(words []string, last string) []string {
	for _, sub := range c.Commands {
		if len(words) > 0 && words[0] == sub.Name {
			return sub.Suggest(words[1:], last)
		}
	}
	var out []string
	if len(words) == 0 {
		for _, sub := range c.Commands {
			if strings.HasPrefix(sub.Name, last) {
				out = append(out, sub.Name+"\t"+sub.Short)
			}
		}
	}
	if !strings.HasPrefix(last, "-") || strings.Contains(last, "=") {
		return out
	}
	var (
		sections Sections
		shared   commonFlags
	)
	c.Options.AddFlags(&sections)
	shared.addFlags(&sections)
	for _, name := range sections.order {
		sections.sets[name].VisitAll(func(f *pflag.Flag) {
			if word := "--" + f.Name; !f.Hidden && strings.HasPrefix(word, last) {
				_, usage := pflag.UnquoteUsage(f)
				usage, _, _ = strings.Cut(usage, "\n")
				out = append(out, word+"\t"+usage)
			}
		})
	}
	return out
}
