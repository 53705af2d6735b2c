// The table of all scores, in a file of its own, which is loaded when it is looked at.

import { Scores } from "./views/scores.js";

globalThis.stsbench("grid", { Scores });
