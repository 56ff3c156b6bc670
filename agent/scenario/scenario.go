// Package scenario runs testdata/scenarios/*.txtar, each the report of one incident, against the production mains.
// Everything in it is a test; this file is its manual.
//
// A scenario is a testscript (github.com/rogpeppe/go-internal/testscript) with a world of its own: a bare git repository
// behind `git http-backend`, a forge that can refuse, redirect and lie, and a proxy that can cut, stall, slow and corrupt; a
// greenhouse; the processes holdfast-guard and holdfast, built once per run with the tag holdfast_testclock; folders, a
// configuration, a clock, and an address in 127.0.0.0/8, so that scenarios run side by side. Nothing is running when a
// scenario begins. The file config.yaml of the archive is laid over the configuration; in it $WORK is the archive, and
// $HTTPS with $CA_FILE, or $SSH with $SSH_KEY and $KNOWN_HOSTS, is the repository by another way.
//
// Agent and guard reach the device through one recorder each, so the harness knows who wrote what, without asking them.
// The agent's device cycles are counted there too.
//
// TestSoak makes weather of the same verbs, at random, for a simulated month (soak_test.go).
//
// # Verbs
//
// Operator and weather; waits name a state, never a duration. WHO is greenhouse, guard or agent.
//
//	push NAME [MESSAGE]       the folder NAME/ of the archive becomes a revision of the branch; $REV is its id
//	re-push NAME              the same with a README that no revision had: other revision, same content
//	force-push NAME           the branch becomes one revision without ancestors
//	reset-branch REVISION     the branch is at that revision again
//	delete-branch             the branch is gone, the repository is not empty
//	rename-branch NAME        it has another name, and later pushes go to it
//	other-devices FOLDER N SIZE   the files of N other devices, of SIZE bytes each, for the next push
//	big-file FILE SIZE        a file of zeros, for the next push
//	cut-network               upstream refuses connections; restore-network mends this and everything below
//	stall-network [after=N]   connections are accepted and go silent, after N bytes of an answer
//	slow-network [rate=KB/s] [latency=DURATION]
//	corrupt-network [from=N] [every=N]   bits of each answer are flipped, from byte N on
//	upstream-answers N|portal|empty|moved|elsewhere|ok   each request is answered with status N, a login page, 200 and nothing, or
//	                          the word that the repository has moved: on the same server, where it is, or to another one
//	upstream-token TOKEN N    who does not have it as a password is answered with status N
//	upstream-config KEY VALUE a setting of the repository's own (git-config(1)); it has uploadpack.allowFilter
//	upstream-branches N       there are N more branches
//	ssh-host-key, make-known  the SSH server has another key; its key is added to the known ones
//
//	boot                      start everything that is not running
//	start WHO                 start one
//	crash WHO                 SIGKILL
//	freeze WHO [before-write] SIGSTOP, at once or when it next writes to the device, the write then being on its way
//	freeze WHO after-read     SIGSTOP when it next reads the device's state, the answer then being on its way
//	thaw WHO                  SIGCONT; what was on its way arrives first
//	terminate WHO             SIGTERM, and wait for exit code 0
//	restart WHO               terminate and start
//	reload WHO                SIGHUP
//	power-cut                 SIGKILL for everything, the device included; the run folder is lost and uptime starts anew
//	clock [wall=DURATION] [uptime=+DURATION]   the wall clock is off by this; uptime goes forward by this
//	small-disk [SIZE]         before boot: the state folder is a file system of its own (default 8 MiB)
//	disk-full, disk-free      fill it, and free it
//	read-only, read-write     remount it; nothing may be running
//	corrupt FILE truncate|flip|zero|junk|empty   FILE is ledger.db, ledger.json or clone.db
//	delete FILE               the same, or state: the whole folder
//	configure [WHO] FILE      the archive's FILE replaces the configuration (of one process)
//
//	cut-power-in-replacing FILE   boot, and a power cut while a process writes what is to take FILE's place
//
//	device FIELD VALUE        somebody turns a knob at the device itself
//	device-fault JSON         POST /sim/faults; device-heal ends all
//	device-weather JSON       POST /sim/set: the hour, what is warm, wet, bright
//	device-speed N            before boot: simulated time per time
//
//	battery holds|sags|gone   what the check of that name, in every scenario's configuration, is told
//	battery sags-with FIELD=VALUE…   it sags while the device has all of these
//
//	wait-for KEY=VALUE…       until all hold at once; on failure shows what it saw. KEY!=VALUE, KEY~PART, KEY>=N too
//	expect KEY=VALUE…         now
//	steady [KEY=VALUE…]       until the branch's head is declared and in force, all is well and nothing under way
//	fault KIND [TEXT…]        until git=KIND, with TEXT in its message or advice; then `holdfast status` has one line about it that says
//	                          the kind, since when, how often and what to do; what was declared at the last steady is declared
//	                          and in force, nothing was written to the device since then, or since count-writes
//	fetch                     somebody asks for a fetch; until it has ended
//	bad-fetches cut|damaged N as many fetches, each a fault that leaves the files as at the last steady: answers end after one packet
//	                          more each time, or another byte of the pack is wrong; one that is whole is followed by a re-push
//	idle N cycles             until the agent has begun N more device cycles
//	trials NAME N             the history tells of exactly N trials of what the folder NAME declares
//	count-writes              from here on
//	writes [WHO] N            exactly N writes (<=N: at most) were sent to the device since count-writes
//	count-files, files-untouched, files-no-larger   nothing was written in the state folder in between; nothing has grown there
//	count-traffic, traffic <=SIZE  so much came from upstream in between, whatever the protocol
//	peak-memory WHO <=SIZE    the largest that the process has been in memory
//	[!] holdfast ARGS…        the CLI with this world's configuration; then stdout, stderr, cmp
//	page FILE SECTION         the commands of that section of docs/FILE, which must print what the page says ("…" is anything)
//	guard-api METHOD PATH [JSON]   a request on guard.sock
//
// A request that goes to another server than the configured one fails a scenario, whatever its script says.
//
// kill and stop belong to testscript and cannot be replaced, and its stop ends a script as passed: a test keeps both, and
// skip, out of scenarios.
//
// # Keys
//
// device.FIELD is asked from the device, process.WHO (running, frozen, dead) is known; all others come from `holdfast
// status --json` and stand in view_test.go (places). A key that begins with a dot is a path into that JSON.
package scenario
