package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/agent/status"
	"holdfast/bootslot"
)

func newCompletion() *cobra.Command {
	shells := []string{"bash", "fish", "zsh"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print what makes a shell complete verbs, fields, marks and revisions",
		Long: `Print what makes a shell complete holdfast's verbs and flags, and the fields, marks and revisions of
this board. SHELL is bash, fish or zsh.

Exit code 0.`,
		Example: `  holdfast completion bash > /etc/bash_completion.d/holdfast
  holdfast completion fish > ~/.config/fish/completions/holdfast.fish
  holdfast completion zsh > "${fpath[1]}/_holdfast"`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(shells, args[0]) {
				return errors.New("say for which shell: " + strings.Join(shells, ", "))
			}
			return nil
		},
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			root, w := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(w, true)
			case "fish":
				return root.GenFishCompletion(w, true)
			}
			return root.GenZshCompletion(w)
		},
	}
}

// completeTime bounds what somebody who has pressed tab waits for agent and guard each.
const completeTime = 300 * time.Millisecond

// known are the names on this board that a verb may be given, each with what it is behind a tab.
type known struct {
	fields, marks, revisions, head, checks []string
}

// complete offers what of picks, for the first argument only.
func complete(where *place, pick func(known) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return pick(where.known(cmd.Context())), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag is complete for a flag's value.
func completeFlag(c *cobra.Command, where *place, flag string, pick func(known) []string) {
	err := c.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return pick(where.known(cmd.Context())), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // there is no such flag
	}
}

// known asks as quickly as status --oneline does.
func (w place) known(ctx context.Context) (k known) {
	if ctx == nil {
		ctx = context.Background()
	}
	b := w.open()
	b.patience = completeTime
	v := status.Build(b.sources(ctx, quickly))
	for _, a := range b.profile.Actuators {
		about := ""
		if e := v.Effective.Fields[a.Name]; e != "" {
			about = "\tis to be " + e
		}
		k.fields = append(k.fields, a.Name+about)
	}
	for _, m := range v.Marks {
		k.marks = append(k.marks, strconv.FormatUint(m.ID, 10)+"\t"+status.FieldsText(b.profile, m.Set))
	}
	revisions := map[string]string{}
	add := func(revision, about string) {
		if revision != "" && revisions[revision] == "" {
			revisions[revision] = about
		}
	}
	if d := v.Declared; d != nil {
		add(d.Revision, "declared: "+d.Subject)
	}
	for name, s := range v.Slots {
		add(s.Revision, fmt.Sprintf("slot %s: %s", name, s.Status))
	}
	if v.Previous != nil {
		add(v.Previous.Revision, "previous")
	}
	for _, r := range slices.Sorted(maps.Keys(revisions)) {
		k.revisions = append(k.revisions, r+"\t"+revisions[r])
	}
	if r := v.Git.RemoteRevision; r != "" {
		k.head = []string{r + "\tthe branch's head"}
	}
	for _, c := range v.Checks {
		k.checks = append(k.checks, c.Name)
	}
	return k
}

// eventKinds are all that --kind takes.
var eventKinds = []bootslot.EventKind{bootslot.EventAdopted, bootslot.EventTrial, bootslot.EventKind(bootslot.Passed), bootslot.EventKind(bootslot.Failed),
	bootslot.EventKind(bootslot.Inconclusive), bootslot.EventKind(bootslot.Cancelled), bootslot.EventStands, bootslot.EventEnvironment, bootslot.EventMarkDropped,
	bootslot.EventRollback, bootslot.EventRetry, bootslot.EventSuspended, bootslot.EventResumed, bootslot.EventUnhealthy, bootslot.EventHealthy,
	bootslot.EventConfigured, bootslot.EventRepaired}
